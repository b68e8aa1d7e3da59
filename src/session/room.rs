//! The room that queues take.

use std::collections::VecDeque;

/// What a queue keeps when it is empty.
const KEPT: usize = 256;

/// Gives the room back that a crowd has left: queues are long when thousands of locks are taken at
/// once, or watches opened again, and short for the rest of their lives.
pub(super) fn give_back<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > 2 * KEPT {
        queue.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_keeps_little_and_a_full_one_all() {
        let mut queue: VecDeque<_> = (0..10_000).collect();
        give_back(&mut queue);
        assert_eq!(queue.len(), 10_000);
        queue.clear();
        give_back(&mut queue);
        assert!(queue.capacity() < 2 * KEPT);
    }
}

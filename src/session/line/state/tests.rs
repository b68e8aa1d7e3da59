use super::*;

/// So many that nobody stands in one.
const CROWD: usize = 100;

fn put(key: &str, at: i64) -> Event {
    Event {
        key: Arc::from(key.as_bytes()),
        created: at,
        at,
    }
}

fn delete(key: &str, at: i64) -> Event {
    Event {
        created: 0,
        ..put(key, at)
    }
}

fn standing(key: &str, revision: i64) -> Standing {
    Standing {
        key: key.into(),
        revision,
        modified: revision,
        lease: 1,
        value: Vec::new(),
    }
}

fn stand(state: &mut State, key: &str, revision: i64) -> oneshot::Receiver<News> {
    stand_in(state, key, revision, CROWD)
}

fn stand_in(state: &mut State, key: &str, revision: i64, crowd: usize) -> oneshot::Receiver<News> {
    let (tell, news) = oneshot::channel();
    let ahead = Ahead::of(&tracing::Span::none());
    state.stand(&Arc::from(key.as_bytes()), revision, ahead, crowd, tell);
    news
}

fn told(news: &mut oneshot::Receiver<News>) -> Option<News> {
    news.try_recv().ok()
}

fn all(_: &[u8]) -> bool {
    true
}

#[test]
fn the_turn_comes_when_all_before_are_gone() {
    let mut state = State::default();
    state.load(5, vec![standing("a", 3), standing("b", 4)], CROWD);
    let mut news = stand(&mut state, "me", 7);
    state.follow(vec![put("c", 6), put("me", 7), delete("a", 8)], CROWD, all);
    assert_eq!(told(&mut news), None);
    state.follow(vec![delete("c", 9), delete("b", 10)], CROWD, all);
    assert_eq!(told(&mut news), Some(News::Turn));
}

#[test]
fn nobody_is_first_before_its_own_put_was_seen() {
    let mut state = State::default();
    state.load(5, Vec::new(), CROWD);
    let mut news = stand(&mut state, "me", 7);
    assert_eq!(told(&mut news), None, "somebody may have come at 6");
    state.follow(vec![put("c", 6)], CROWD, all);
    assert_eq!(told(&mut news), None);
    state.follow(vec![put("me", 7)], CROWD, all);
    assert_eq!(told(&mut news), None);
    state.follow(vec![delete("c", 8)], CROWD, all);
    assert_eq!(told(&mut news), Some(News::Turn));
}

#[test]
fn a_waiter_whose_key_goes_is_told_wherever_it_is_seen() {
    let mut state = State::default();
    state.load(5, vec![standing("a", 3), standing("me", 4)], CROWD);
    let mut news = stand(&mut state, "me", 4);
    state.follow(vec![delete("me", 6), delete("a", 6)], CROWD, all);
    assert_eq!(
        told(&mut news),
        Some(News::Gone),
        "not the turn of a key that is gone"
    );
    let mut news = stand(&mut state, "me", 4);
    assert_eq!(told(&mut news), Some(News::Gone), "gone before it asked");
    let mut news = stand(&mut state, "me", 7);
    state.load(9, vec![standing("a", 8)], CROWD);
    assert_eq!(told(&mut news), Some(News::Gone), "not in a later read");
}

#[test]
fn events_from_before_the_read_change_nothing() {
    let mut state = State::default();
    state.load(9, vec![standing("again", 8)], CROWD);
    let mut news = stand(&mut state, "me", 10);
    state.follow(
        vec![delete("again", 7), put("again", 8), put("me", 10)],
        CROWD,
        all,
    );
    assert_eq!(told(&mut news), None);
    state.follow(vec![delete("again", 11)], CROWD, all);
    assert_eq!(told(&mut news), Some(News::Turn));
}

#[test]
fn a_waiter_on_a_key_used_again_is_not_taken_for_its_earlier_owner() {
    let mut state = State::default();
    state.load(6, vec![standing("me", 5), standing("next", 6)], CROWD);
    // The earlier owner has left at 7, which is not seen yet.
    let mut news = stand(&mut state, "me", 8);
    assert_eq!(told(&mut news), None, "it stands behind the next one");
    state.follow(vec![delete("me", 7)], CROWD, all);
    assert_eq!(told(&mut news), None, "that was the earlier key");
    state.follow(vec![put("me", 8), delete("next", 9)], CROWD, all);
    assert_eq!(told(&mut news), Some(News::Turn));
}

#[test]
fn of_keys_put_together_the_smaller_is_first() {
    let mut state = State::default();
    state.load(9, vec![standing("ma", 8), standing("me", 8)], CROWD);
    let mut news = stand(&mut state, "me", 8);
    assert_eq!(told(&mut news), None);
    state.follow(vec![delete("ma", 10)], CROWD, all);
    assert_eq!(told(&mut news), Some(News::Turn));
}

#[test]
fn whoever_stands_far_back_in_a_crowd_waits_elsewhere() {
    let near = i64::from(NEAR);
    let line = |n| (1..=n).map(|at| standing(&format!("k{at}"), at)).collect();
    let mut state = State::default();
    state.load(near + 1, line(near + 1), usize::from(NEAR));
    let (near_one, far_one) = (format!("k{near}"), format!("k{}", near + 1));
    let mut near_news = stand_in(&mut state, &near_one, near, usize::from(NEAR));
    let mut far_news = stand_in(&mut state, &far_one, near + 1, usize::from(NEAR));
    assert_eq!(told(&mut near_news), None);
    assert_eq!(told(&mut far_news), Some(News::Far));
    let mut of_many = stand_in(&mut state, &far_one, near + 1, 2 * usize::from(NEAR));
    assert_eq!(told(&mut of_many), None, "there are more of us");
    state.load(near + 1, line(near + 1), usize::from(NEAR));
    assert_eq!(told(&mut near_news), None);
    assert_eq!(told(&mut of_many), Some(News::Far), "there were");
}

#[test]
fn whoever_joins_a_line_that_is_followed_goes_far_when_its_put_is_seen() {
    let near = i64::from(NEAR);
    let mut state = State::default();
    let before = (1..=near).map(|at| standing(&format!("k{at}"), at));
    state.load(near, before.collect(), 1);
    let mut news = stand_in(&mut state, "me", near + 1, 1);
    assert_eq!(told(&mut news), None, "it is not known where it stands");
    state.follow(vec![put("me", near + 1)], 1, all);
    assert_eq!(told(&mut news), Some(News::Far));
}

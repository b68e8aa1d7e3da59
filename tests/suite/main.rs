//! The suite: every promise of the crate on real etcd servers.
//!
//! Each test starts servers of its own (`support::etcd`) and its name is a claim. A file holds
//! what one promise needs; faults are made by signals to etcd and to ourselves, and by a byte
//! proxy between client and server (`support::proxy`).
//!
//! # Failures from the field
//!
//! Each was reported of some lock in use, and has its test here; `sim::` are those of the simulation. What happens by
//! chance and all at once is in `tests/sim` and `tests/chaos`.
//!
//! 1. Holder behind a silent cut: `losing::work_behind_a_silent_cut_is_stopped_before_the_next_holds`,
//!    `overlap::a_holder_is_told_before_the_next_holds_at_whatever_phase_of_its_renewal`
//! 2. All members dead for good: `losing::with_all_members_dead_a_session_ends_within_its_ttl_and_nothing_hangs`
//! 3. Key deleted by an operator: `losing::a_key_deleted_under_a_holder_is_told_within_a_second`,
//!    `losing::a_key_deleted_at_the_very_turn_is_told_within_a_second`
//! 4. Renewals fine, keys gone: `losing::answered_renewals_do_not_keep_a_hold_whose_key_is_gone`
//! 5. Lease revoked by hand: `losing::a_lease_revoked_by_hand_is_told_to_holder_and_waiter_within_a_second`,
//!    `losing::an_idle_session_learns_of_its_revoke_by_its_next_renewal_or_use`
//! 6. A timeout around the acquire: `losing::a_timeout_around_lock_does_not_touch_renewal`
//! 7. A minority member still answers:
//!    `members::no_quorum_for_longer_is_told_in_time_and_a_new_session_works_afterwards`
//! 8. Process stopped beyond the TTL: `losing_process::a_stopped_process_is_told_first_and_its_late_write_is_refused`,
//!    `guarded::late::a_process_stopped_in_the_middle_of_its_writes_changes_nothing_any_more`
//! 9. Every thread of the runtime blocked: `losing_process::a_runtime_with_every_worker_blocked_is_told_by_the_clock`
//! 10. A late renewal of a lost guard: `losing::a_lost_guard_stays_lost_when_its_renewals_are_answered_late`
//! 11. Pauses around read, modify, write:
//!     `losing_process::pauses_in_mid_write_lose_updates_without_the_token_and_none_with_it`
//! 12. Snapshot restored: `losing_restore::after_a_restore_what_the_snapshot_does_not_know_is_lost_and_nothing_hangs`
//! 13. Waiter's lease revoked, holder stays:
//!     `waiting::a_waiter_whose_lease_or_key_goes_is_told_within_a_second_near_and_far`
//! 14. Release between looking and watching: `waiting::a_release_at_any_moment_of_the_next_ones_coming_wakes_it`
//! 15. Wait dropped at any await: `cancellation::dropped::a_wait_dropped_after_any_poll_leaves_the_line`,
//!     `cancellation::dropped::a_thousand_locks_dropped_at_random_times_leave_no_key`
//! 16. Clean-up of a cancelled wait fails: `cancellation::hiccups::a_cancelled_wait_is_cleaned_up_over_a_broken_line`
//! 17. Answer to the join swallowed:
//!     `cancellation::hiccups::a_join_whose_answers_are_swallowed_stands_in_the_line_once`
//! 18. 1,000 failed tries: `cancellation::hiccups::a_thousand_failed_tries_over_a_shaky_line_leave_no_key`
//! 19. A limited wait, all members down: `waiting::lock_within_keeps_its_limit_whatever_etcd_does`
//! 20. Cancelled at the moment of winning:
//!     `cancellation::dropped::at_the_moment_of_winning_there_is_a_guard_with_a_key_or_neither`
//! 21. Compaction while a watch is broken:
//!     `waiting_faults::a_compaction_while_its_watch_is_broken_costs_a_waiter_no_place`
//! 22. Member restarted under 50 waiters:
//!     `waiting_faults::a_member_restarted_under_fifty_waiters_keeps_their_order_and_all_get_their_turn`
//! 23. The watch's member frozen:
//!     `waiting_faults::a_waiter_whose_watch_hangs_on_a_frozen_member_is_woken_by_a_release_through_another`
//! 24. Cut off while waiting: `waiting_faults::a_waiter_cut_off_from_etcd_stops_waiting_with_its_session`
//! 25. Delete while the watch is renewed:
//!     `waiting_faults::a_release_at_any_moment_of_a_cut_and_its_healing_is_not_missed`
//! 26. All ways for the one ahead to go: `waiting::however_the_one_ahead_goes_the_next_is_woken`
//! 27. Certain after a long wait: `waiting::after_a_long_wait_the_hold_is_certain_for_long`
//! 28. Holder of many TTLs: `waiting::a_holder_of_many_ttls_keeps_the_line_as_it_is`
//! 29. The connected member frozen: `renewing::a_member_frozen_under_renewals_costs_no_lock_and_no_error`
//! 30. Leaders killed again and again: `members::leaders_killed_in_a_row_cost_no_lock_and_lead_to_no_storm`
//! 31. TTL 0 right after the grant: `sim::scripted::a_lease_that_a_lagging_member_does_not_know_yet_is_no_loss`
//! 32. Streams cut once a second: `renewing::connections_reset_once_a_second_cost_no_session_and_few_renewals`
//! 33. etcd's clock jumps: `sim::scripted::when_etcds_clock_jumps_by_an_hour_every_loss_is_told_and_all_goes_on`
//! 34. Request timeout of the client: `renewing::a_request_timeout_of_the_client_harms_neither_waiting_nor_holding`
//! 35. Attempts as long as the lease: `renewing::renewals_that_hang_leave_room_for_others_within_the_smallest_ttl`,
//!     `renewing::a_ttl_or_margin_that_cannot_work_is_refused_before_anything_is_sent`
//! 36. Late delete, newer key: `releasing::confirmed::a_release_that_is_tried_again_spares_the_next_hold`
//! 37. Release through a cut-off member:
//!     `releasing::confirmed::a_release_through_a_member_without_peers_is_done_when_they_are_back`
//! 38. Release cancelled or failing: `releasing::confirmed::a_release_over_a_line_that_fails_is_done_when_it_is_back`,
//!     `cancellation::dropped::a_release_dropped_after_any_poll_is_carried_out`
//! 39. Guard dropped in odd places: `releasing::dropped::a_guard_dropped_in_a_panic_gives_the_lock_up`,
//!     `releasing::dropped::a_drop_needs_no_runtime`,
//!     `releasing::dropped::a_guard_dropped_while_its_runtime_shuts_down_leaves_with_the_lease`
//! 40. Not held before the key is gone: `releasing::confirmed::a_guard_counts_as_lost_before_its_key_is_gone`
//! 41. Work ends before the release: `releasing::confirmed::work_has_ended_when_the_next_holder_begins`,
//!     `leading::work_that_does_not_end_within_its_grace_is_dropped_and_then_it_resigns`
//! 42. Release of a lost guard: `releasing::confirmed::the_release_of_a_lost_guard_says_so_at_once`
//! 43. SIGKILL, SIGTERM: `releasing::dropped::the_lock_of_a_killed_process_is_free_within_the_ttl_and_a_second`,
//!     `election_kills::a_leader_that_ends_in_any_other_way_hands_over_at_once`
//! 44. Candidate's lease goes: `election_faults::a_candidate_whose_lease_is_revoked_never_leads`
//! 45. etcd away for longer than the TTL: `election_outages::after_an_outage_of_five_ttls_one_leads`
//! 46. What observers see: `observer::an_observer_shows_each_state_once_and_no_mere_candidate`,
//!     `observer::under_churn_only_true_leaders_are_shown_in_the_order_of_their_tokens`
//! 47. Campaigning on after dead sessions: `leading_faults::sessions_that_die_in_a_row_are_followed_at_growing_pauses`
//! 48. Stopped while still waiting: `leading::a_shutdown_while_waiting_is_no_loss`
//! 49. Work that hangs: `leading_progress::work_that_hangs_is_dropped_and_another_leads`
//! 50. Tokens that expire, roles that change: `identity::tokens_that_expire_under_a_holder_and_a_waiter_cost_nothing`,
//!     `identity::a_role_that_changes_under_a_holder_and_a_waiter_costs_nothing`
//! 51. Permission missing, taken, given back: `input::servers::a_user_without_permission_is_told_what_it_needs`,
//!     `identity::a_waiter_outlasts_that_its_permission_is_taken_away_and_given_back`
//! 52. One of three members dead: `members::with_one_of_three_members_dead_a_thousand_cycles_go_without_an_error`
//! 53. TLS with client certificates:
//!     `transport::with_client_certificates_and_a_dead_member_a_lock_is_held_waited_for_and_released`,
//!     `transport::who_is_not_trusted_is_told_so`
//! 54. 10,000 locks, 10,000 waiters:
//!     `scale::ten_thousand_locks_and_as_many_waiters_need_two_connections_and_few_streams`
//! 55. 128 waiters, one release: `contract::line::a_release_wakes_a_bounded_number_however_long_the_line`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod api;
mod breaking;
mod cancellation;
#[cfg(feature = "cli")]
mod command;
mod connecting;
mod contract;
mod election;
mod election_faults;
mod election_interop;
mod election_kills;
mod election_outages;
mod guarded;
mod guide;
mod harness;
mod identity;
mod input;
mod interop;
mod leading;
mod leading_faults;
mod leading_progress;
mod leaks;
mod losing;
mod losing_process;
mod losing_restore;
mod members;
mod migrating;
mod misuse;
mod observer;
mod observer_faults;
mod operating;
mod overlap;
mod releasing;
mod renewing;
mod reports;
mod riding;
mod scale;
mod support;
mod tick;
mod tick_faults;
mod traces;
#[cfg(feature = "tls")]
mod transport;
mod waiting;
mod waiting_faults;
mod watching;
mod watching_files;

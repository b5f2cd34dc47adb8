package kv

import "context"

// CommitGated is Commit by a leader that stops after the first transaction of its batch until the gate opens.
func CommitGated(s *Store, ctx context.Context, b Batch, gate <-chan struct{}) (Head, error) {
	return CommitBetween(s, ctx, b, func() { <-gate })
}

// CommitBetween is Commit that does something between every two transactions.
func CommitBetween(s *Store, ctx context.Context, b Batch, do func()) (Head, error) {
	slow := *s
	slow.between = do
	return slow.Commit(ctx, b)
}

// Numbers that the tests of Space use.
const (
	SpaceEvery     = spaceEvery
	HistorySamples = historySamples
)

// Samples returns the number of revisions that are kept.
func (s *Space) Samples() int { return len(s.samples) }

package meaning

import "context"

// mostSteps bounds the comparisons of terms for the views of one change. They take some seconds.
const mostSteps = 100_000_000

// everySteps is the number of comparisons after which the context is checked.
const everySteps = 1 << 12

// budget bounds comparisons of the terms of rules. A user may write thousands of rules, and each of them is compared
// with the others. After the budget, or the context, has ended, no term is known to cover another one. So rules that
// were not compared count as rules that differ.
type budget struct {
	ctx  context.Context
	left int
}

func newBudget(ctx context.Context, steps int) *budget { return &budget{ctx: ctx, left: steps} }

// spend counts one comparison. It returns false once the budget or the context has ended.
func (b *budget) spend() bool {
	if b.left <= 0 {
		return false
	}
	if b.left--; b.left%everySteps == 0 && b.ctx.Err() != nil {
		b.left = 0
		return false
	}
	return true
}

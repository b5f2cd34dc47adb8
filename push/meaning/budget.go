package meaning

import "context"

// mostSteps is the maximum number of comparisons for all views of one change. That many comparisons take some seconds.
const mostSteps = 100_000_000

// everySteps is the number of comparisons between two checks of the context.
const everySteps = 1 << 12

// budget limits the number of comparisons of authorization rules. A user may write thousands of rules, and each of them
// is compared with the others. After the budget is spent, or the context has ended, no further rules are compared.
// Rules that are not compared count as different.
type budget struct {
	ctx  context.Context
	left int
}

func newBudget(ctx context.Context, steps int) *budget { return &budget{ctx: ctx, left: steps} }

// spend counts one comparison. It returns false once the budget is spent or the context has ended.
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

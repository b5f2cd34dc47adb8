package plan

import "navarch.io/navarch/push/plan/input"

// Problem is something that does not work as it was written, found while planning.
type Problem = input.Problem

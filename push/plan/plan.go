package plan

import "navarch.io/navarch/push/plan/input"

// Problem is a problem of an object that was found while planning.
type Problem = input.Problem

package plan

import "navarch.io/navarch/push/plan/input"

// Problem is an error or a warning about one object of the configuration, found by planning.
type Problem = input.Problem

package plan

import "navarch.io/navarch/push/plan/input"

// Problem describes an error or a warning about one object of the configuration, which planning has found.
type Problem = input.Problem

//go:build race

package plan

// underRace: the race detector takes several times as long, and finds in a few histories what it finds in many. Tests in which no
// goroutines meet (build tag !race) are run without it alone (Makefile, UNRACED).
const underRace = true

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The tests of faults have two sizes: that of `make test`, and the full one of `make load S=faults`.
// NAVARCH_FAULT_SCALE is the factor by which fleets and meshes are larger than in `make test`, each up to its own full
// size. From fullScale on, all have their full size.
const fullScale = 100

var faultScale = mustScale(os.Getenv("NAVARCH_FAULT_SCALE"))

func mustScale(text string) int {
	n, err := strconv.Atoi(cmp.Or(text, "1"))
	if err != nil || n < 1 {
		panic(fmt.Sprintf("NAVARCH_FAULT_SCALE is %q: want a whole number from 1 on", text))
	}
	return n
}

// sized returns the size of a test: small in `make test`, full at full size. It logs the size.
func sized(t testing.TB, small, full int, what string) int {
	t.Helper()
	n := full
	if faultScale < fullScale {
		n = min(small*faultScale, full)
	}
	t.Logf("size: %d %s", n, what)
	return n
}

// within fails at full size if an act that has just ended took longer than its limit, minus the CPU time that other
// programs used meanwhile. In `make test` it only logs the duration.
func within(t testing.TB, limit, took time.Duration, what string) {
	t.Helper()
	atMost(t, limit, took, func() time.Duration { return otherTimes.during(took) }, what)
}

// slowestWithin checks, like within, the slowest of several operations since a time. The moment of that operation is
// unknown, so the allowance is the largest CPU time that other programs used in an interval of that length.
func slowestWithin(t testing.TB, limit, took time.Duration, since time.Time, what string) {
	t.Helper()
	atMost(t, limit, took, func() time.Duration { return otherTimes.most(since, took) }, what)
}

func atMost(t testing.TB, limit, took time.Duration, others func() time.Duration, what string) {
	t.Helper()
	if faultScale < fullScale {
		t.Logf("size: %s in %.1f s", what, took.Seconds())
		return
	}
	stolen := others() / time.Duration(runtime.NumCPU())
	if took-stolen > limit {
		t.Errorf("%s took %v, of which other programs had the processors for %v; at most %v is allowed", what, took, stolen, limit)
		return
	}
	t.Logf("size: %s in %.1f s (others had the processors for %.1f s of it)", what, took.Seconds(), stolen.Seconds())
}

// roomFor fails the test if this process may not open the given number of further files. Go has already raised the
// limit as far as possible.
func roomFor(t testing.TB, files int) {
	t.Helper()
	var limit syscall.Rlimit
	open, err := os.ReadDir("/proc/self/fd")
	if err == nil {
		err = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
	if err != nil {
		t.Fatal(err)
	}
	if need := len(open) + files; uint64(need) > limit.Cur {
		t.Fatalf("%d open files are needed and %d allowed: ulimit -Hn %d, or a smaller NAVARCH_FAULT_SCALE", need, limit.Cur, need)
	}
}

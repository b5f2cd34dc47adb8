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

// The tests of faults have two sizes: that of `make test`, and the full one of `make load S=faults`. NAVARCH_FAULT_SCALE is
// by how much fleets and meshes are larger than in `make test`, each up to its own full size; from fullScale on, all have it.
const fullScale = 100

var faultScale = mustScale(os.Getenv("NAVARCH_FAULT_SCALE"))

func mustScale(text string) int {
	n, err := strconv.Atoi(cmp.Or(text, "1"))
	if err != nil || n < 1 {
		panic(fmt.Sprintf("NAVARCH_FAULT_SCALE is %q: want a whole number from 1 on", text))
	}
	return n
}

// sized is how many of something a test has, given the number in `make test` and the one at full size. The log says it.
func sized(t testing.TB, small, full int, what string) int {
	t.Helper()
	n := full
	if faultScale < fullScale {
		n = min(small*faultScale, full)
	}
	t.Logf("size: %d %s", n, what)
	return n
}

// within fails at full size where something that has just ended took longer than it may, less the time that other programs took of the
// processors meanwhile. In `make test` it only says how long it took.
func within(t testing.TB, limit, took time.Duration, what string) {
	t.Helper()
	atMost(t, limit, took, func() time.Duration { return otherTimes.during(took) }, what)
}

// slowestWithin is within for the slowest of what took place since a time: which moment that was is not known, so the allowance is the most
// that others took of so long a time since then.
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

// roomFor fails where this process may not open so many more files. Go has raised the limit as far as it goes.
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

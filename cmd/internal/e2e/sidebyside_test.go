package e2e

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/programs"
)

// sideBySide is the number of concurrent tests: mostly they wait for leases, deadlines and Envoys.
const sideBySide = "6"

// raced are the tests whose navarchd is built with the race detector: those in which most goroutines of different
// packages meet. It costs several times the processor time and memory, so that the others, and all limits of memory,
// have the plain build.
var raced = []string{
	"TestFleetShares", "TestFleetDrains", "TestAgentMoves", "TestRevocationAndRootsReachEnvoys",
	"TestFaultLeaderCutOff", "TestStoppedLeaderWritesNothing", "TestFaultCompactedPastPausedReplica",
	"TestIstioctlAsks", "TestDebugShowsTenantsTheirOwn", "TestShrinkGuard", "TestGatewaySecret", "TestFaultMalformedRequests",
	"TestRefusalNamesTheObject",
}

// parallel lets a test run beside others, at the size of `make test`; at other sizes limits of time are judged, and
// each has the machine for itself. The one that limits memory does not call it.
func parallel(t *testing.T) {
	t.Helper()
	if faultScale == 1 {
		t.Parallel()
	}
}

// setParallel sets the number of concurrent tests, unless the command line does.
func setParallel() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", sideBySide)
}

// navarchd returns the path of the tests' build of navarchd. One with the race detector logs DATA RACE, which fails the
// test (daemon.run).
func navarchd(t testing.TB) string {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if faultScale > 1 || !slices.Contains(raced, name) {
		return binary(t, "navarchd")
	}
	return programs.Raced(t)
}

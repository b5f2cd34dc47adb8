package plan

import (
	"fmt"

	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/problem"
)

// unrunnable names the WasmPlugins and TrafficExtensions that some proxies cannot run, with the number of workloads whose proxies they are.
func unrunnable(workloads []*workload) (found []Problem) {
	counts := map[inbound.Unrun]int{}
	for _, wl := range workloads {
		for _, u := range wl.Unrun() {
			counts[u]++
		}
	}
	for u, n := range counts {
		follows := "passes without it"
		if u.Closed {
			follows = "is refused"
		}
		found = append(found, input.Warning(u.Extension.Key, problem.NotSupported, "spec",
			fmt.Sprintf("cannot be run by %s, as those of %d selected workloads are: the traffic that it matches there %s", u.Proxies, n, follows)))
	}
	return found
}

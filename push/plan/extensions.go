package plan

import (
	"fmt"

	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/store/model"
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

// unfetched names the WasmPlugins and TrafficExtensions whose modules some agents do not fetch, since there is no credential for them.
func unfetched(all []secret.Unfetched) (found []Problem) {
	for _, u := range all {
		field := "spec.imagePullSecret"
		if u.Extension.Kind == model.KindTrafficExtension {
			field = "spec.wasm.imagePullSecret"
		}
		message := fmt.Sprintf("%s: agents of %d service accounts do not fetch the module, and its failStrategy decides about their traffic", u.Why, u.Accounts)
		found = append(found, input.NotFound(u.Extension, field, message))
	}
	return found
}

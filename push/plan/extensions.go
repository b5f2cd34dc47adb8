package plan

import (
	"fmt"

	"navarch.io/navarch/push/plan/inbound"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// unrunnable returns a problem for each pair of an extension (WasmPlugin or TrafficExtension) and a kind of proxies
// that cannot run the extension. The message contains the number of workloads of these proxies.
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
			fmt.Sprintf("does not run at %d of the selected workloads (%s): the traffic that it matches there %s", n, u.Proxies, follows)))
	}
	return found
}

// unfetched returns a problem for each WasmPlugin and TrafficExtension whose module some agents cannot fetch, because
// they lack a credential.
func unfetched(all []secret.Unfetched) (found []Problem) {
	for _, u := range all {
		field := "spec.imagePullSecret"
		if u.Extension.Kind == model.KindTrafficExtension {
			field = "spec.wasm.imagePullSecret"
		}
		message := fmt.Sprintf("%s: agents of %d service accounts do not fetch the module, "+
			"and its failStrategy decides about their traffic", u.Why, u.Accounts)
		found = append(found, input.NotFound(u.Extension, field, message))
	}
	return found
}

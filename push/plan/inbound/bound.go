package inbound

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// mostAtPorts bounds the product of two numbers: the ports of a workload, and the bytes of its policies and patches.
// Each filter chain of a port contains all policies and patches, and a port has up to five chains. The filters of a
// policy have up to three times the bytes of the policy.
const mostAtPorts = 8 << 20

// closeTooLarge checks whether the policies and patches of the inbound listeners exceed mostAtPorts. If so, it closes
// the listeners, and removes the policies and patches from them.
func (wl *Workload) closeTooLarge(v *listener.VirtualInbound, own []listener.Ingress) {
	patches := map[model.Patch]bool{}
	for _, p := range v.Patches.All() {
		patches[p] = true
	}
	for _, l := range own {
		for _, p := range l.Patches.All() {
			patches[p] = true
		}
	}
	if !wl.tooLarge(v.Ports.Len()+len(own)+1, patches) { // all ports without an entry count as one
		return
	}
	v.Closed, v.Policies, v.Authentications, v.Authorizers = true, policies.List(), policies.List(), authorizers.List()
	v.Patches = listener.Common{}.Patches
	for i := range own {
		l := &own[i]
		l.Closed, l.Policies, l.Authentications, l.Authorizers = true, v.Policies, v.Authentications, v.Authorizers
		l.Patches = v.Patches
	}
}

// tooLarge reports whether the workload's policies, with patches of its listeners, exceed mostAtPorts at a number of
// ports. If so, it adds a problem for the largest object, and the workload must be closed. A workload without one of
// the policies could admit requests that the policy refuses.
func (wl *Workload) tooLarge(ports int, patches map[model.Patch]bool) bool {
	sizes := map[model.Key]int{}
	for _, list := range []intern.List[*model.Policy]{wl.policies, wl.authentications} {
		for _, p := range list.All() {
			sizes[p.Key] += proto.Size(p.Spec)
		}
	}
	for p := range patches {
		sizes[p.Filter.Key] += proto.Size(p.Config().GetPatch().GetValue())
	}
	sum, largest := 0, model.Key{}
	for key, size := range sizes {
		sum += size
		if most := sizes[largest]; size > most || size == most && key.Compare(largest) < 0 {
			largest = key
		}
	}
	if sum <= mostAtPorts/max(1, ports) {
		return false
	}
	wl.found = append(wl.found, input.Problem{Key: largest, Code: problem.NotAllowed, Severity: problem.Error,
		Message: fmt.Sprintf("workloads of namespace %s with %d ports refuse all connections: this object has %d KiB, and all policies and "+
			"patches of their inbound listener have %d KiB; this size times the number of ports must not exceed %d KiB",
			wl.key.Namespace, ports, sizes[largest]>>10, sum>>10, mostAtPorts>>10)})
	return true
}

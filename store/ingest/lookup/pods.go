package lookup

import (
	"cmp"
	"iter"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// podsByAddress finds Pods by their addresses. It indexes only namespaces in which an object looks up a Pod by address.
// Only few EndpointSlices omit the names of their Pods, and an index of all namespaces would need much memory.
type podsByAddress struct {
	every func() iter.Seq2[object.ID, *normal.Pod]
	asked map[podPlace]*podsHere
	all   map[podPlace][]namedPod // cache of all Pods during Table.Renew; nil: not filled yet
}

// podsHere contains the Pods of one namespace by their addresses.
type podsHere struct {
	at    map[string][]namedPod
	names int // number of addresses that objects look up there
}

// podPlace is a namespace of an origin.
type podPlace struct {
	origin    origin.Origin
	namespace string
}

type namedPod struct {
	name string
	pod  *normal.Pod
}

// pods returns all Pods.
func (t *Table[E]) pods() iter.Seq2[object.ID, *normal.Pod] {
	return func(yield func(object.ID, *normal.Pod) bool) {
		for id, n := range t.objects {
			if pod, is := n.parsed.(*normal.Pod); is && !yield(id, pod) {
				return
			}
		}
	}
}

// PodAt implements normal.Lookup. It returns the Pod that has not ended and has an address (normal.PodAtID); nil
// without such a Pod. If several Pods have the address, as Pods in the host network do, it prefers Pods that are not
// being deleted, then the first by name. The Pod is read-only. Call PodAt within Renew only, and pass id to SetRefs.
// The index of the namespace is built from Pods that are cached until Renew ends. The index is kept while objects refer
// to its addresses.
func (t *Table[E]) PodAt(id object.ID) *normal.Pod {
	p, at := &t.index.pods, podPlace{id.Origin, id.Namespace}
	if p.asked[at] == nil {
		p.asked[at] = &podsHere{at: map[string][]namedPod{}}
		for _, one := range p.of(at) {
			p.asked[at].add(one)
		}
	}
	all := p.asked[at].at[id.Name]
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b namedPod) int {
		if a.pod.Terminating != b.pod.Terminating {
			if a.pod.Terminating {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.name, b.name)
	}).pod
}

// of returns all Pods of a namespace.
func (p *podsByAddress) of(at podPlace) []namedPod {
	if p.all == nil {
		p.all = map[podPlace][]namedPod{}
		for id, pod := range p.every() {
			in := podPlace{id.Origin, id.Namespace}
			p.all[in] = append(p.all[in], namedPod{id.Name, pod})
		}
	}
	return p.all[at]
}

// count counts the addresses of a namespace that objects look up. The parameter delta is 1 when the first object looks
// up an address, and -1 when no object does any more. Without such addresses, the namespace has no index.
func (p *podsByAddress) count(name object.ID, delta int) {
	at := podPlace{name.Origin, name.Namespace}
	here := p.asked[at]
	if here == nil {
		return
	}
	if here.names += delta; here.names == 0 {
		delete(p.asked, at)
	}
}

// indexPod applies the change of a Pod to the index of its namespace, and to the addresses of the clusters.
func indexPod(x *indexes, id object.ID, before, after any) {
	x.addresses.Count(addressesOf(as[*normal.Pod](after)), 1)
	x.addresses.Count(addressesOf(as[*normal.Pod](before)), -1)
	here := x.pods.asked[podPlace{id.Origin, id.Namespace}]
	if here == nil {
		return
	}
	if before != nil {
		here.remove(namedPod{id.Name, before.(*normal.Pod)})
	}
	if after != nil {
		here.add(namedPod{id.Name, after.(*normal.Pod)})
	}
}

// addressesOf returns the addresses of a Pod; nil without an address. It also returns nil for a Pod that has ended,
// since its addresses may be another Pod's.
func addressesOf(pod *normal.Pod) []string {
	if pod == nil || pod.Address == "" || pod.Ended {
		return nil
	}
	return append([]string{pod.Address}, pod.More...)
}

func (h *podsHere) add(one namedPod) {
	for _, address := range addressesOf(one.pod) {
		h.at[address] = append(h.at[address], one)
	}
}

func (h *podsHere) remove(one namedPod) {
	for _, address := range addressesOf(one.pod) {
		h.at[address] = slices.DeleteFunc(h.at[address], func(other namedPod) bool { return other.name == one.name })
		if len(h.at[address]) == 0 {
			delete(h.at, address)
		}
	}
}

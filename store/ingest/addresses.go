package ingest

import (
	"cmp"
	"slices"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// podAddresses finds Pods by their addresses, in those namespaces alone in which some object looks one up: few EndpointSlices do not name their Pods, and a table of the
// Pods of all namespaces would be a considerable part of a leader's memory. Owned by inventory.
type podAddresses struct {
	asked map[podPlace]*podsHere
	all   map[podPlace][]*entry // every Pod, from the first question while events are taken; nil: there was none
}

// podsHere are the Pods of one namespace by their addresses, as long as somebody looks one up.
type podsHere struct {
	at    map[string][]*entry // the Pods that have each address
	reads int                 // how many addresses are looked up there, by all objects together
}

// podPlace is a namespace of an origin.
type podPlace struct {
	origin    origin.Origin
	namespace string
}

// PodAt implements normal.Lookup. Of several Pods that have the address, as those in their node's network have, it is the first by name that is not being deleted.
func (w *inventory) PodAt(id object.ID) *normal.Pod {
	at := podPlace{id.Origin, id.Namespace}
	if w.podsAt.asked[at] == nil {
		w.podsAt.asked[at] = &podsHere{at: map[string][]*entry{}}
		for _, e := range w.podsOf(at) {
			w.podsAt.add(e)
		}
	}
	all := w.podsAt.asked[at].at[id.Name]
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *entry) int {
		if a.pod.Terminating != b.pod.Terminating {
			if a.pod.Terminating {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.object.ID.Name, b.object.ID.Name)
	}).pod
}

// podsOf is all Pods of a namespace.
func (w *inventory) podsOf(at podPlace) []*entry {
	if w.podsAt.all == nil {
		w.podsAt.all = map[podPlace][]*entry{}
		for id, e := range w.objects {
			if e.pod != nil {
				in := podPlace{id.Origin, id.Namespace}
				w.podsAt.all[in] = append(w.podsAt.all[in], e)
			}
		}
	}
	return w.podsAt.all[at]
}

// setPod takes over what a Pod is; nil: it has gone. Those that looked up one of its addresses are made again.
func (w *inventory) setPod(e *entry, pod *normal.Pod, touched map[object.ID]bool) {
	id := e.object.ID
	w.clusterAddresses.count(addressesOf(pod), 1)
	w.clusterAddresses.count(addressesOf(e.pod), -1)
	asked := w.podsAt.asked[podPlace{id.Origin, id.Namespace}] != nil
	if asked {
		w.podsAt.remove(e)
		for _, address := range addressesOf(e.pod) {
			w.touch(normal.PodAtID(id, address), touched)
		}
	}
	if e.pod = pod; asked {
		w.podsAt.add(e)
		for _, address := range addressesOf(pod) {
			w.touch(normal.PodAtID(id, address), touched)
		}
	}
	w.touch(id, touched)
}

// addressesOf is where a Pod is reached: nowhere if it has ended, since others may have its addresses then.
func addressesOf(pod *normal.Pod) []string {
	if pod == nil || pod.Address == "" || pod.Ended {
		return nil
	}
	return append([]string{pod.Address}, pod.More...)
}

// looks counts addresses that an object looks up in its own namespace; more may be negative. The table of a namespace in which none is looked up is dropped.
func (p *podAddresses) looks(of object.ID, more int) {
	at := podPlace{of.Origin, of.Namespace}
	here := p.asked[at]
	if here == nil || more == 0 {
		return
	}
	if here.reads += more; here.reads == 0 {
		delete(p.asked, at)
	}
}

func (p *podAddresses) of(e *entry) map[string][]*entry {
	return p.asked[podPlace{e.object.ID.Origin, e.object.ID.Namespace}].at
}

func (p *podAddresses) add(e *entry) {
	all := p.of(e)
	for _, address := range addressesOf(e.pod) {
		all[address] = append(all[address], e)
	}
}

func (p *podAddresses) remove(e *entry) {
	all := p.of(e)
	for _, address := range addressesOf(e.pod) {
		if all[address] = slices.DeleteFunc(all[address], func(other *entry) bool { return other == e }); len(all[address]) == 0 {
			delete(all, address)
		}
	}
}

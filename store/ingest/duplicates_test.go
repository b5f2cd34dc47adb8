package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// from is an event of one source of the config cluster.
func from(source string, e object.Event) object.Event {
	e = of("", e)
	e.ID.Origin = origin.New("", source)
	if e.Object != nil {
		e.Object.ID.Origin = e.ID.Origin
	}
	return e
}

func (d *desk) paths() string {
	var all []string
	for key := range d.stored {
		all = append(all, key.Path())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Of two objects with the same name the API server's applies, and a problem names the file's, in either order of
// arrival. The file's applies when the other is removed. Policies of both apply.
func TestFileAndKubernetes(t *testing.T) {
	for _, first := range []string{origin.Files, origin.Kube} {
		second := origin.Kube
		if first == origin.Kube {
			second = origin.Files
		}
		d := newDesk(t)
		d.lead()
		both := func(text string) {
			d.step(Objects{from(first, put(t, text))})
			d.step(Objects{from(second, put(t, text))})
		}
		d.step(Objects{synced})
		both(svc)
		both(policy("{}"))
		both(fmt.Sprintf(meshMap, "connectTimeout: 3s"))
		const policies = "AuthorizationPolicy//files/shop/p AuthorizationPolicy//kube/shop/p "
		if got := d.paths(); got != policies+"Mesh////mesh Service//kube/shop/web" {
			t.Errorf("%s first: stored %s", first, got)
		}
		if p := fmt.Sprint(d.s.Problems()); strings.Count(p, "an object of this name in Kubernetes takes precedence") != 2 || !strings.Contains(p, "Service shop/web") {
			t.Errorf("%s first: problems %s", first, p)
		}
		d.step(Objects{from(origin.Files, put(t, fmt.Sprintf(meshMap, "connectTimeout: 5s")))})
		if got := d.s.inventory.objects.Mesh().ConnectTimeout.AsDuration().Seconds(); got != 3 {
			t.Errorf("%s first: the mesh configuration of a file counts: %v s", first, got)
		}
		d.step(Objects{from(origin.Kube, gone(put(t, fmt.Sprintf(meshMap, "x")))), from(origin.Kube, gone(put(t, svc)))})
		if got := d.paths(); got != policies+"Mesh////mesh Service//files/shop/web" || d.s.inventory.objects.Mesh().ConnectTimeout.AsDuration().Seconds() != 5 {
			t.Errorf("%s first: without the API server's: stored %s, mesh %v", first, got, d.s.inventory.objects.Mesh().ConnectTimeout)
		}
		if p := d.s.Problems(); len(p) != 0 {
			t.Errorf("%s first: problems %v", first, p)
		}
	}
}

// A WorkloadEntry in a file precedes that of a self-registered machine, in either order of arrival. A problem names the
// machine's, which applies when the file's is removed.
func TestFileAndMachine(t *testing.T) {
	const entry = "{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: vms-10.0.0.1, namespace: shop}, spec: {address: 10.0.0.1, serviceAccount: vm}}"
	for _, order := range [][]string{{origin.Files, origin.Machines}, {origin.Machines, origin.Files}} {
		d := newDesk(t)
		d.lead()
		d.step(Objects{synced})
		for _, source := range order {
			d.step(Objects{from(source, put(t, entry))})
			d.step(Due{})
		}
		if got := d.paths(); strings.Contains(got, "machines") || !strings.Contains(got, "/files/shop/") {
			t.Errorf("%v: stored %s", order, got)
		}
		if p := d.s.Problems(); len(p) != 1 || p[0].ID.Origin.Source() != origin.Machines || !strings.Contains(p[0].Message, "an object of this name in a file takes precedence") {
			t.Errorf("%v: problems %v", order, p)
		}
		d.step(Objects{from(origin.Files, gone(put(t, entry)))})
		d.step(Due{})
		if got := d.paths(); !strings.Contains(got, "/machines/shop/") || len(d.s.Problems()) > 0 {
			t.Errorf("%v: without the file's: stored %s, problems %v", order, got, d.s.Problems())
		}
	}
}

// Nothing is written before every source has emitted everything. A source whose objects were forgotten at the end of a
// term has to emit everything again in the next term; until then its stored records stay.
func TestSourcesThatBeginAgain(t *testing.T) {
	d := newDesk(t)
	kube := origin.New("", origin.Kube)
	d.s = NewState(Options{Sources: []origin.Origin{{}, kube}})
	d.lead()
	d.want(Objects{from(origin.Files, put(t, vs("a", "1s"))), synced})
	all := Objects{from(origin.Kube, put(t, svc)), {Op: object.Synced, ID: object.ID{Origin: kube}}}
	d.want(all, "load", "write +Service web +VirtualService a")
	for _, merged := range []bool{false, true} { // the loop passes only the newest state of leadership, before the events
		d.epoch.Revision++
		if !merged {
			d.s.Step(Lost{})
			d.want(Objects{{Op: object.Forget, ID: object.ID{Origin: kube}}})
			d.lead()
		} else {
			effects := d.s.Step(Gained{Epoch: d.epoch})
			d.s.Step(Objects{{Op: object.Forget, ID: object.ID{Origin: kube}}})
			for _, e := range effects {
				d.s.Step(Loaded{Epoch: e.(Load).Epoch, Have: d.stored, After: 1, Complete: true})
			}
		}
		if d.s.inventory.objects.Len() != 1 {
			t.Errorf("%d objects are kept, want that of the file", d.s.inventory.objects.Len())
		}
		d.want(Objects{from(origin.Files, put(t, vs("b", "1s")))}) // nothing is written yet
		d.want(all, "load", "write +VirtualService b")
		d.want(Objects{from(origin.Files, gone(put(t, vs("b", "1s"))))}, "write -VirtualService b")
		if got := d.paths(); got != "Service//kube/shop/web VirtualService//files/shop/a" {
			t.Errorf("stored %s", got)
		}
	}
}

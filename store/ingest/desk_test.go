package ingest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

func parse(t testing.TB, text string) *object.Object {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("test input: %v\n%s", err, text)
	}
	var head struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, Namespace string
			Labels          map[string]string
		}
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		t.Fatal(err)
	}
	group, version, ok := strings.Cut(head.APIVersion, "/")
	if !ok {
		group, version = "", group
	}
	return &object.Object{ID: object.ID{Group: group, Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name},
		Version: version, Labels: head.Metadata.Labels, JSON: raw, Location: head.Metadata.Name + ".yaml#1"}
}

func put(t testing.TB, text string) object.Event {
	o := parse(t, text)
	return object.Event{Op: object.Put, ID: o.ID, Object: o, Location: o.Location}
}

func gone(e object.Event) object.Event {
	return object.Event{Op: object.Delete, ID: e.ID, Location: e.Location}
}

func broken(e object.Event) object.Event {
	return object.Event{Op: object.Broken, ID: e.ID, Location: e.Location, Problem: "is no YAML"}
}

var synced = object.Event{Op: object.Synced}

func vs(name, timeout string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: shop}\nspec: {hosts: [%s], http: [{timeout: %s, route: [{destination: {host: web}}]}]}", name, name, timeout)
}

func policy(spec string) string {
	return "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\nspec: " + spec
}

func pod(name, labels string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, labels: {%s}}\nspec: {nodeName: n1}", name, labels)
}

func epSlice(name, address, pod string) string {
	return fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: [{name: http, port: 80}]\nendpoints: [{addresses: [%s], targetRef: {kind: Pod, name: %s}}]", name, address, pod)
}

const svc = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}"

const meshMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: '%s'}"

// desk drives a State against a store in memory.
type desk struct {
	t      *testing.T
	s      *State
	stored map[model.Key]model.Hash
	bytes  map[model.Key]int
	keep   map[model.Key]*model.Secret
	mesh   *model.Mesh // stored last
	epoch  kv.Epoch
	after  int64 // revision of the stored head; 0: the head is missing
	now    time.Time
}

func newDesk(t *testing.T) *desk {
	return &desk{t: t, s: NewState(Options{Budget: weighed}), stored: map[model.Key]model.Hash{}, bytes: map[model.Key]int{},
		keep: map[model.Key]*model.Secret{}, epoch: kv.Epoch{Key: "leader", Revision: 7}, after: 1}
}

// step applies an event and executes its effects, until none is left; it returns the effects.
func (d *desk) step(event Event) (done []string) {
	effects := d.s.Step(event)
	for len(effects) > 0 {
		effect := effects[0]
		effects = effects[1:]
		switch e := effect.(type) {
		case Load:
			done = append(done, "load")
			effects = append(effects, d.s.Step(Loaded{Epoch: e.Epoch, Have: maps.Clone(d.stored), Bytes: maps.Clone(d.bytes), Secrets: maps.Clone(d.keep), Mesh: d.mesh, After: d.after, Complete: true, Now: d.now})...)
		case Write:
			done = append(done, d.commit(e.Batch))
			effects = append(effects, d.s.Step(Written{Epoch: e.Batch.Epoch, After: 2})...)
		case Wait:
			done = append(done, "wait")
		}
	}
	return done
}

func (d *desk) commit(b kv.Batch) string {
	var parts []string
	for _, r := range b.Puts {
		d.stored[r.Meta().Key] = r.Meta().Hash
		if mesh, is := r.(*model.Mesh); is {
			d.mesh = mesh
		}
		if s, is := r.(*model.Secret); is {
			d.keep[s.Key] = s
		}
		raw, err := model.Encode(r)
		if err != nil {
			d.t.Fatal(err)
		}
		d.bytes[r.Meta().Key] = len(raw)
		sign := "+"
		if p, ok := r.(*model.Policy); ok && p.Spec.Closed {
			sign = "+closed "
		}
		parts = append(parts, sign+r.Meta().Key.Kind.String()+" "+r.Meta().Key.Name)
	}
	for _, k := range b.Deletes {
		if delete(d.stored, k); k == model.MeshKey {
			d.mesh = nil
		}
		delete(d.bytes, k)
		delete(d.keep, k)
		parts = append(parts, "-"+k.Kind.String()+" "+k.Name)
	}
	return "write " + strings.Join(parts, " ")
}

func (d *desk) want(event Event, want ...string) {
	d.t.Helper()
	if got := d.step(event); !slices.Equal(got, want) {
		d.t.Errorf("after %T: did %q, want %q", event, got, want)
	}
}

func (d *desk) lead() { d.s.Step(Gained{Epoch: d.epoch}) }

func named(namespace, name string) object.ID {
	return object.ID{Group: "networking.istio.io", Kind: "VirtualService", Namespace: namespace, Name: name}
}

package resolve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// west is the origin of a second cluster whose configuration is not read.
var west = origin.New("west", "files")

// mesh makes random edits of the records that refer by sets, or are referred to, and of Endpoints. It uses few names,
// so that many records refer to each other.
type mesh struct {
	t       testing.TB
	r       *rand.Rand
	records map[model.Key]model.Record
}

func (m *mesh) pick(from ...string) string { return from[m.r.IntN(len(from))] }

// edit returns one random new or changed record, or the key of a deleted one.
func (m *mesh) edit() (put model.Record, del model.Key) {
	kinds := []model.Kind{model.KindVirtualService, model.KindVirtualService, model.KindServiceEntry, model.KindService, model.KindWorkload,
		model.KindWorkload, model.KindEndpoints}
	key := model.Key{Kind: kinds[m.r.IntN(len(kinds))], Namespace: m.pick("a", "b"), Name: m.pick("o0", "o1", "o2")}
	if key.Kind == model.KindWorkload && m.r.IntN(2) == 0 {
		key.Name = model.WorkloadEntryPrefix + key.Name
	} else if slices.Contains([]model.Kind{model.KindService, model.KindWorkload, model.KindEndpoints}, key.Kind) && m.r.IntN(3) == 0 {
		key.Origin = west
	}
	if old, ok := m.records[key]; ok && m.r.IntN(4) == 0 {
		delete(m.records, key)
		return nil, old.Meta().Key
	}
	put = record(m.t, key, m.text(key))
	m.records[key] = put
	return put, model.Key{}
}

func (m *mesh) text(key model.Key) string {
	switch key.Kind {
	case model.KindVirtualService:
		return m.virtualService()
	case model.KindServiceEntry, model.KindService:
		return fmt.Sprintf("{hosts: [%s.test], selector: {%s}, resolution: %s, ports: [{name: http, number: 80, %s}]}", key.Name,
			m.pick("", "app: x", "app: x", "app: z", "app: x, version: v1"), m.pick("RESOLUTION_EDS", "RESOLUTION_EDS", "RESOLUTION_DNS", "RESOLUTION_NONE"),
			m.pick("targetNumber: 8080", "targetName: web", ""))
	case model.KindWorkload:
		source := "WORKLOAD_SOURCE_POD"
		if strings.HasPrefix(key.Name, model.WorkloadEntryPrefix) {
			source = "WORKLOAD_SOURCE_WORKLOAD_ENTRY"
		}
		return fmt.Sprintf("{source: %s, endpoint: {address: %s, labels: {%s}, health: %s, ports: {%s}, serviceAccount: %s}}", source,
			m.pick("10.1.0.1", "10.1.0.2", "10.1.0.2", "vm.example.com"), m.pick("", "app: x", "app: x", "app: z", "app: x, version: v1"),
			m.pick("HEALTH_READY", "HEALTH_READY", "HEALTH_NOT_READY"), m.pick("", "web: 81", "http: 82"), m.pick("sa", "sa", "other"))
	default:
		return "{hosts: [o0.test], endpoints: [{address: 10.2.0." + m.pick("1", "2", "3") + "}]}"
	}
}

func (m *mesh) virtualService() string {
	var b strings.Builder
	root := m.r.IntN(2) == 0
	if root {
		fmt.Fprintf(&b, "hosts: [%s]\n", m.pick("x.test", "y.test"))
	}
	fmt.Fprintf(&b, "exportTo: [%s]\nhttp:\n", m.pick("'*'", "'*'", "a", "b"))
	for range 1 + m.r.IntN(2) {
		fmt.Fprintf(&b, "- {name: '%s', match: [%s], timeout: %ss, ", m.pick("", "r"), m.pick("", "{uri: {prefix: /a}}", "{uri: {prefix: /a/b}}", "{uri: {exact: /c}}, {headers: {x: {exact: z}}}"), m.pick("1", "2"))
		if root && m.r.IntN(3) > 0 {
			fmt.Fprintf(&b, "delegate: {name: %s, namespace: %s}}\n", m.pick("o0", "o1", "o2"), m.pick("a", "b"))
		} else {
			fmt.Fprintf(&b, "route: [{destination: {host: %s.test}}]}\n", m.pick("d0", "d1"))
		}
	}
	return b.String()
}

// record returns a record with this key and a body in YAML.
func record(t testing.TB, key model.Key, text string) model.Record {
	t.Helper()
	var body proto.Message
	switch key.Kind {
	case model.KindVirtualService:
		body = &networkingv1.VirtualService{}
	case model.KindService, model.KindServiceEntry:
		body = &model.ServiceSpec{}
	case model.KindWorkload:
		body = &model.WorkloadSpec{}
	default:
		body = &model.EndpointsSpec{}
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, body)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", key, err, text)
	}
	r, err := model.New(key, 1, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

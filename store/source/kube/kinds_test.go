package kube

import (
	"iter"
	"slices"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// The versions that are read are those that normal supports.
func TestVersionsAreNormals(t *testing.T) {
	for group, kind := range map[string]string{"networking.istio.io": "EnvoyFilter", "security.istio.io": "PeerAuthentication", "telemetry.istio.io": "Telemetry"} {
		for _, version := range []string{"v1", "v1beta1", "v1beta2", "v1alpha1", "v1alpha2", "v1alpha3", "v2"} {
			o := &object.Object{ID: object.ID{Group: group, Kind: kind, Namespace: "n", Name: "n"}, Version: version, JSON: []byte("{}")}
			takes := !slices.ContainsFunc(normal.New(normal.Options{}).Object(o, nothing{}).Problems, func(p object.Problem) bool { return p.Code == problem.NotSupported })
			if slices.Contains(known[group], version) != takes {
				t.Errorf("%s %s: normal takes it: %v, read: %v", group, version, takes, !takes)
			}
		}
	}
}

// The groups of all records are discovered. For a new group the failure names the table to extend.
func TestGroupsOfRecordsAreDiscovered(t *testing.T) {
	for _, k := range model.Kinds() {
		if group, kind := k.Object(); model.Defined(group) && (!wanted(group) || len(known[group]) == 0) {
			t.Errorf("no version of %s, the group of %s, is read: its line in known (kinds.go) is missing", group, kind)
		}
	}
}

func TestBestVersion(t *testing.T) {
	for _, c := range []struct {
		group  string
		served []string
		want   []string
	}{
		{"networking.istio.io", []string{"v1alpha3", "v1beta1", "v1"}, []string{"v1", "v1beta1", "v1alpha3"}},
		{"networking.istio.io", []string{"v3", "v1beta1"}, []string{"v1beta1"}},
		{"security.istio.io", []string{"v3"}, nil},
		{"operator.istio.io", []string{"v9", "v1"}, []string{"v9", "v1"}},
	} {
		if got := inOrder(c.group, c.served); !slices.Equal(got, c.want) {
			t.Errorf("%s served in %v: read in %v, want %v", c.group, c.served, got, c.want)
		}
	}
}

// nothing is a Lookup that finds nothing.
type nothing struct{ normal.Nobody }

func (nothing) Pod(object.ID) *normal.Pod                  { return nil }
func (nothing) PodAt(object.ID) *normal.Pod                { return nil }
func (nothing) Node(object.ID) *normal.Node                { return nil }
func (nothing) Nodes(origin.Origin) iter.Seq[*normal.Node] { return func(func(*normal.Node) bool) {} }
func (nothing) Namespace(object.ID) *normal.Namespace      { return nil }
func (nothing) Role(object.ID) *normal.Role                { return nil }
func (nothing) Mesh() *meshv1.MeshConfig                   { return &meshv1.MeshConfig{} }
func (nothing) Networks() *meshv1.MeshNetworks             { return nil }
func (nothing) Resolved(object.ID) []string                { return nil }
func (nothing) Keys(object.ID) (k normal.Keys)             { return k }
func (nothing) Automatic(object.ID) map[string][]string    { return nil }
func (nothing) AutomaticAt(object.ID) object.ID            { return object.ID{} }

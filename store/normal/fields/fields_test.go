package fields

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"istio.io/api/annotation"
	"istio.io/api/label"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
)

// Every field of every message with which configuration begins has a mark, its own or that of a field above it, and no
// row is unreachable. A new version of istio.io/api adds fields without a mark: read their documentation, and mark
// them.
func TestEveryFieldHasAMark(t *testing.T) {
	reached := map[*Row]bool{}
	seen := map[protoreflect.FullName]bool{}
	var visit func(md protoreflect.MessageDescriptor, within []protoreflect.FieldDescriptor)
	visit = func(md protoreflect.MessageDescriptor, within []protoreflect.FieldDescriptor) {
		first := !seen[md.FullName()]
		seen[md.FullName()] = true
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			row := Of(fd, "", within)
			if row == nil {
				t.Errorf("%s has no mark: table.txt says of every field what becomes of it", fd.FullName())
				continue
			}
			for _, r := range table().rows[fd.FullName()] {
				if r.Within == "" || r == Of(fd, r.Value, within) {
					reached[r] = true
				}
			}
			if below := Below(fd); below != nil && row.Mark == Acted && (first || len(within) < 4) {
				visit(below, append(within[:len(within):len(within)], fd))
			}
		}
	}
	for _, root := range Roots() {
		visit(root.Message, nil)
	}
	for row := range Rows() {
		if !reached[row] {
			t.Errorf("%v has a line, and nothing that is acted on leads to it", row)
		}
	}
}

// Every annotation and label of istio.io/api has a mark.
func TestEveryNameHasAMark(t *testing.T) {
	for _, a := range annotation.AllResourceAnnotations() {
		if Named(Annotations, a.Name) == nil {
			t.Errorf("annotation %s has no mark: names.txt says of each what becomes of it", a.Name)
		}
	}
	for _, l := range label.AllResourceLabels() {
		if Named(Labels, l.Name) == nil {
			t.Errorf("label %s has no mark: names.txt says of each what becomes of it", l.Name)
		}
	}
}

// A test that a row names is there.
func TestTestsAreThere(t *testing.T) {
	for row := range All() {
		folder, name, is := strings.Cut(row.Test, " ")
		if !is {
			continue
		}
		files, err := filepath.Glob(filepath.Join("..", "..", "..", folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		there := false
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			there = there || strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {")
		}
		if !there {
			t.Errorf("%v: %s has no test %s", row, folder, name)
		}
	}
}

func TestParse(t *testing.T) {
	const of = "[istio.networking.v1alpha3.ServiceEntry]\n"
	for text, want := range map[string]string{
		"[istio.networking.v1alpha3.Nothing]":      "there is no message",
		of + "nothing acted -":                     "has no field nothing",
		of + "resolution=NOTHING none never":       "has no value NOTHING",
		of + "hosts=A none never":                  "has no value A",
		of + "hosts somehow -":                     `"somehow" is no mark`,
		of + "hosts acted":                         "a scene or a reason",
		of + "hosts acted by the builder":          "neither a scene nor a test",
		of + "hosts acted test push/build":         "no folder and name of a test",
		of + "hosts acted -\nhosts reported again": "twice",
		"hosts acted -":                            "below no message",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Each reported field that is set is found once, at its path: in lists, in maps, below supported fields; a value of an
// enum, and a field that is reported in one place only.
func TestUnacted(t *testing.T) {
	for name, c := range map[string]struct {
		message proto.Message
		text    string
		want    []string
	}{
		"nothing is set": {&networkingv1.DestinationRule{}, `{"host": "a"}`, nil},
		"in a list":      {&networkingv1.Sidecar{}, `{"ingress": [{"bind": "a"}, {"tls": {"caCertCredentialName": "b"}}]}`, []string{"spec.ingress[1].tls.caCertCredentialName"}},
		"below another": {&meshv1.MeshConfig{}, `{"caCertificates": [{"spiffeBundleUrl": "a"}], "ca": {"address": "a"}, "enableEnvoyAccessLogService": true}`,
			[]string{"spec.ca", "spec.caCertificates[0].spiffeBundleUrl", "spec.enableEnvoyAccessLogService"}},
		"a value":                          {&networkingv1.EnvoyFilter{}, `{"configPatches": [{"applyTo": "CLUSTER"}]}`, nil},
		"false is as if it were not there": {&meshv1.MeshConfig{}, `{"enableEnvoyAccessLogService": false}`, nil},
	} {
		if err := protojson.Unmarshal([]byte(c.text), c.message); err != nil {
			t.Fatal(name, err)
		}
		var got []string
		Unacted(c.message, "spec", func(path string, row *Row) { got = append(got, path) })
		if !slices.Equal(slices.Sorted(slices.Values(got)), c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// all messages of istio.io/api that configuration begins with, by name.
func everyMessage() []protoreflect.MessageDescriptor {
	all := map[protoreflect.FullName]protoreflect.MessageDescriptor{}
	for _, root := range Roots() {
		collect(root.Message, all)
	}
	return slices.SortedFunc(maps.Values(all), func(a, b protoreflect.MessageDescriptor) int {
		return strings.Compare(string(a.FullName()), string(b.FullName()))
	})
}

package dump

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"navarch.io/navarch/push/xds"
)

// collect returns the resources of all dumps in a stream, and the error that ended it.
func collect(r io.Reader) (all []Resource, nodes int, err error) {
	s := NewStream(r)
	s.from.most = 1 << 20
	for {
		err = s.Next(Visitor{Node: func(json.RawMessage) error { nodes++; return nil }, Section: func(xds.Type) error { return nil },
			Resource: func(r Resource) error { all = append(all, r); return nil }})
		if err != nil {
			return all, nodes, err
		}
	}
}

// A stream has the resources that Read has, but for static ones, undecoded.
func TestStreamHasWhatReadHas(t *testing.T) {
	raw, err := os.ReadFile("../../../deploy/fidelity/example/dump.json")
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(raw), "\n")
	var want []Resource
	for _, one := range []string{first, second} {
		d, err := Read([]byte(one))
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route} {
			for _, r := range d.Resources[kind] {
				r.Message, r.Problem = nil, nil
				want = append(want, r)
			}
		}
	}
	got, nodes, err := collect(strings.NewReader(string(raw)))
	if !errors.Is(err, io.EOF) || nodes != 2 || len(want) < 100 || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %d nodes, %d resources, want %d", err, nodes, len(got), len(want))
	}
}

// endless is a resource without an end.
type endless struct{ begun bool }

func (e *endless) Read(p []byte) (int, error) {
	if !e.begun {
		e.begun = true
		return copy(p, `{"configs": [{"@type": "x/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": [{"cluster": {"name": "`), nil
	}
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// A resource without an end, or another form, ends the stream with an error.
func TestStreamIsBounded(t *testing.T) {
	if _, _, err := collect(&endless{}); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("endless: %v", err)
	}
	for _, text := range []string{`[1]`, `7`, `{}`, `{"configs": 1}`, `{"configs": [{"x": 1}]}`, `{"configs": [{"@type": "x", "y": [`, `{"configs": [`} {
		if _, _, err := collect(strings.NewReader(text)); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

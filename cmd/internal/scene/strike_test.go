package scene

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/object"
)

// collect finds the table's rows for the fields in the scene.
func (s *struckScene) collect(t *testing.T) {
	t.Helper()
	see := &striker{struck: func(row *fields.Row) bool {
		s.rows[row] = true
		return false
	}, value: func(v protoreflect.EnumValueDescriptor, of protoreflect.FieldDescriptor) {
		s.values[enumValue{of.FullName(), v.Name()}] = true
	}}
	s.each(t, see)
}

// striker removes fields from objects, or changes their values.
type striker struct {
	struck func(*fields.Row) bool
	value  func(protoreflect.EnumValueDescriptor, protoreflect.FieldDescriptor) // told of each value of an enum; nil: nobody is
	other  int                                                                  // fields are given another value, where that can be: of an enum the one so many behind; 0: they are taken out
	given  bool                                                                 // one was
	values int                                                                  // how many values the enum of a struck field has
}

// each calls struck with the row of every field of objects and nodes, and returns them without the fields for which it
// returns true.
func (s *struckScene) each(t *testing.T, by *striker) ([]object.Event, map[string]map[string]any) {
	t.Helper()
	events, nodes, struck := s.objects, s.nodes, by.struck
	out := slices.Clone(events)
	for i, e := range events {
		if e.Object == nil {
			continue
		}
		whole := tree(t, e.Object.JSON)
		changed := false
		next := *e.Object
		if md := root(e.ID.Kind); md != nil && strings.HasSuffix(e.ID.Group, "istio.io") {
			changed = by.strike(whole["spec"], md, nil)
		}
		data, _ := whole["data"].(map[string]any)
		for key, of := range map[string]string{"mesh": "MeshConfig", "meshNetworks": "MeshNetworks"} {
			stated, is := data[key].(string)
			if !is || e.ID.Kind != "ConfigMap" {
				continue
			}
			raw, err := yaml.YAMLToJSON([]byte(stated))
			if err != nil {
				continue
			}
			if mesh := tree(t, raw); by.strike(mesh, root(of), nil) {
				data[key], changed = string(text(t, mesh)), true
			}
		}
		metadata, _ := whole["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if stated, is := annotations[proxyConfig].(string); is {
			raw, err := yaml.YAMLToJSON([]byte(stated))
			if err != nil {
				t.Fatal(err)
			}
			if config := tree(t, raw); by.strike(config, (&meshv1.ProxyConfig{}).ProtoReflect().Descriptor(), nil) {
				next.Annotations = maps.Clone(next.Annotations)
				next.Annotations[proxyConfig] = string(text(t, config))
				annotations[proxyConfig], changed = next.Annotations[proxyConfig], true
			}
		}
		for _, of := range []struct {
			section, field string
			has            *map[string]string
		}{{fields.Annotations, "annotations", &next.Annotations}, {fields.Labels, "labels", &next.Labels}} {
			kept := maps.Clone(*of.has)
			stated, _ := metadata[of.field].(map[string]any)
			for name := range *of.has {
				if row := fields.Named(of.section, name); row != nil && struck(row) {
					delete(kept, name)
					delete(stated, name)
					changed = true
				}
			}
			*of.has = kept
		}
		if changed {
			next.JSON = text(t, whole)
			out[i].Object = &next
		}
	}
	kept := map[string]map[string]any{}
	for name, node := range nodes {
		kept[name] = maps.Clone(node)
		metadata, _ := node["metadata"].(map[string]any)
		less := maps.Clone(metadata)
		for key := range metadata {
			if row := fields.Named(fields.Metadata, key); row != nil && struck(row) {
				delete(less, key)
			}
		}
		if less != nil {
			kept[name]["metadata"] = less
		}
	}
	return out, kept
}

// proxyConfig is the annotation of Pods that has a ProxyConfig of the mesh configuration.
const proxyConfig = "proxy.istio.io/config"

func root(kind string) protoreflect.MessageDescriptor {
	for _, r := range fields.Roots() {
		if r.Name == kind {
			return r.Message
		}
	}
	return nil
}

// strike calls struck with the row of each field that a tree has, the outer ones first, and strikes those for which it
// is true.
func (by *striker) strike(v any, md protoreflect.MessageDescriptor, within []protoreflect.FieldDescriptor) (changed bool) {
	object, is := v.(map[string]any)
	if !is {
		return false
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		fd := md.Fields().ByJSONName(key)
		if fd == nil {
			fd = md.Fields().ByName(protoreflect.Name(key))
		}
		if fd == nil {
			continue
		}
		value, _ := object[key].(string)
		by.valued(fd, object[key])
		row := fields.Of(fd, value, within)
		if row == nil {
			continue
		}
		if by.struck(row) {
			if fd.Enum() != nil {
				by.values = fd.Enum().Values().Len()
			}
			if value, can := another(object[key], fd, by.other); can && by.other > 0 {
				object[key], by.given = value, true
			} else {
				delete(object, key)
			}
			changed = true
			continue
		}
		below := fields.Below(fd)
		if below == nil || row.Mark != fields.Acted && row.Mark != fields.Closed && row.Mark != fields.Whole {
			continue
		}
		inner := append(within[:len(within):len(within)], fd)
		switch elements := object[key].(type) {
		case []any:
			for _, element := range elements {
				changed = by.strike(element, below, inner) || changed
			}
		case map[string]any:
			if fd.IsMap() {
				for _, element := range elements {
					changed = by.strike(element, below, inner) || changed
				}
			} else {
				changed = by.strike(elements, below, inner) || changed
			}
		}
	}
	return changed
}

// another returns another value of a field; of an enum, the value that is `behind` positions later. false: the field
// contains messages or maps.
func another(v any, fd protoreflect.FieldDescriptor, behind int) (any, bool) {
	if list, is := v.([]any); is {
		out := make([]any, len(list))
		for i := range list {
			other, can := anotherOf(list[i], fd, behind)
			if !can {
				return nil, false
			}
			out[i] = other
		}
		return out, true
	}
	return anotherOf(v, fd, behind)
}

func anotherOf(v any, fd protoreflect.FieldDescriptor, behind int) (any, bool) {
	switch t := v.(type) {
	case string:
		if fd.Enum() != nil {
			values := fd.Enum().Values()
			if now := values.ByName(protoreflect.Name(t)); now != nil {
				return string(values.Get((now.Index() + behind) % values.Len()).Name()), true
			}
		}
		if d, err := time.ParseDuration(t); err == nil {
			return (d + time.Second).String(), true
		}
		if t == "UNAVAILABLE" { // a gRPC status: no others begin with x
			return "INTERNAL", true
		}
		return "x" + t, true
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return json.Number(strconv.FormatInt(n+1, 10)), true
		}
	case bool:
		return !t, true
	}
	return nil, false
}

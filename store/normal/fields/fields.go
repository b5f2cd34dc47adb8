// Package fields says how this version treats every field of Istio's configuration: it is acted on, it is reported where somebody sets it, or
// it has no effect for sidecars. table.txt says so for the fields of istio.io/api, names.txt for annotations, labels and node metadata;
// deploy/docs/compatibility.md is generated from both, and store/normal reports by them.
//
// Owns: nothing; the tables are immutable.  Reads: descriptors of istio.io/api.  Never: objects of Kubernetes, Envoy types.
package fields

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	securityv1 "istio.io/api/security/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
)

// Mark says what becomes of a field.
type Mark string

// The marks, as the tables have them.
const (
	Acted    Mark = "acted"    // it changes what proxies are sent, or what else its scene prints
	Reported Mark = "reported" // it is not acted on, and each object that sets it has a problem that names it (problem.NotSupported)
	Whole    Mark = "whole"    // it is not acted on, and each object of its kind has a problem that says so
	Closed   Mark = "closed"   // it is not acted on, and ignoring it would open something: the object is refused, or what it selects is closed
	None     Mark = "none"     // nothing in a mesh of sidecars is another because of it
)

// Row is what becomes of one field.
type Row struct {
	Message protoreflect.FullName // of names.txt: the section
	Field   string                // JSON name
	Value   string                // of an enum: the row is for this value alone; empty: for the field
	// Within is a field, as Message.field: the row is for what lies below it, in place of the general one; empty: it is the general one.
	Within string
	Mark   Mark
	Scene  string // of an acted field: the scene in which it is struck; empty: none
	Test   string // of one that no scene can show: the Go test that does, as the folder of its package and its name; empty: none
	Text   string // of others: why, and what happens instead; beside a test: what acts on it, may be empty
}

// String is the field as a line of the table has it, with its message.
func (r *Row) String() string {
	return string(r.Message) + "." + r.key()
}

func (r *Row) key() string {
	out := r.Field
	if r.Value != "" {
		out += "=" + r.Value
	}
	if r.Within != "" {
		out += " in " + r.Within
	}
	return out
}

// Root is a kind of object, or what the mesh configuration has.
type Root struct {
	Name    string // as users know it
	Message protoreflect.MessageDescriptor
}

// Roots are all messages that configuration begins with.
func Roots() []Root {
	var all []Root
	for _, of := range []struct {
		name    string
		message proto.Message
	}{
		{"VirtualService", &networkingv1.VirtualService{}}, {"DestinationRule", &networkingv1.DestinationRule{}},
		{"ServiceEntry", &networkingv1.ServiceEntry{}},
		{"WorkloadEntry", &networkingv1.WorkloadEntry{}}, {"WorkloadGroup", &networkingv1.WorkloadGroup{}}, {"Sidecar", &networkingv1.Sidecar{}},
		{"Gateway", &networkingv1.Gateway{}}, {"EnvoyFilter", &networkingv1.EnvoyFilter{}}, {"ProxyConfig", &proxyconfigv1.ProxyConfig{}},
		{"AuthorizationPolicy", &securityv1.AuthorizationPolicy{}}, {"PeerAuthentication", &securityv1.PeerAuthentication{}},
		{"RequestAuthentication", &securityv1.RequestAuthentication{}}, {"Telemetry", &telemetryv1.Telemetry{}},
		{"WasmPlugin", &extensionsv1.WasmPlugin{}}, {"TrafficExtension", &extensionsv1.TrafficExtension{}},
		{"MeshConfig", &meshv1.MeshConfig{}}, {"MeshNetworks", &meshv1.MeshNetworks{}},
	} {
		all = append(all, Root{of.name, of.message.ProtoReflect().Descriptor()})
	}
	return all
}

// Of gives the row of a field; nil: it has none of its own, and is below a field that is not acted on. within are the fields that it lies below, the
// nearest last; value is that of an enum, else empty.
func Of(fd protoreflect.FieldDescriptor, value string, within []protoreflect.FieldDescriptor) *Row {
	var general *Row
	for _, r := range table().rows[fd.FullName()] {
		switch {
		case r.Value != "" && r.Value != value:
		case r.Within == "" && (general == nil || r.Value != ""):
			general = r
		case r.Within != "" && slices.ContainsFunc(within, func(f protoreflect.FieldDescriptor) bool { return nameOf(f) == r.Within }):
			return r
		}
	}
	return general
}

// nameOf is a field as Row.Within has it.
func nameOf(fd protoreflect.FieldDescriptor) string {
	return short(fd.ContainingMessage().FullName()) + "." + fd.JSONName()
}

// short is the name of a message without its package: messages within messages have dots.
func short(name protoreflect.FullName) string {
	parts := strings.Split(string(name), ".")
	first := slices.IndexFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' })
	return strings.Join(parts[max(first, 0):], ".")
}

// Rows are all rows of istio.io/api's fields, in the order of the table.
func Rows() iter.Seq[*Row] { return slices.Values(table().all) }

// Unacted calls do with each field of a message that is set and reported, in the order of its fields: its path below path, as users write it, and
// its row. What lies below such a field is not looked at.
func Unacted(m proto.Message, path string, do func(path string, row *Row)) {
	(&walk{do: do}).message(m.ProtoReflect(), path)
}

// walk is on its way through a message.
type walk struct {
	within []protoreflect.FieldDescriptor
	do     func(path string, row *Row)
}

func (w *walk) message(m protoreflect.Message, path string) {
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); m.Has(fd) {
			w.field(fd, m.Get(fd), path+"."+fd.JSONName())
		}
	}
}

func (w *walk) field(fd protoreflect.FieldDescriptor, v protoreflect.Value, path string) {
	value := ""
	if fd.Kind() == protoreflect.EnumKind && !fd.IsList() && !fd.IsMap() {
		if known := fd.Enum().Values().ByNumber(v.Enum()); known != nil {
			value = string(known.Name())
		}
	}
	row := Of(fd, value, w.within)
	if row != nil && row.Mark == Reported {
		w.do(path, row)
	}
	if row != nil && (row.Mark == Reported || row.Mark == None) || Below(fd) == nil {
		return
	}
	w.within = append(w.within, fd)
	switch {
	case fd.IsMap():
		for _, key := range sortedKeys(v.Map()) {
			w.message(v.Map().Get(key).Message(), fmt.Sprintf("%s[%s]", path, key.String()))
		}
	case fd.IsList():
		for i := range v.List().Len() {
			w.message(v.List().Get(i).Message(), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		w.message(v.Message(), path)
	}
	w.within = w.within[:len(w.within)-1]
}

func sortedKeys(m protoreflect.Map) (keys []protoreflect.MapKey) {
	m.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// Below is the message of Istio's that a field holds, or its elements; nil: it holds values, or messages of protobuf's own.
func Below(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	md := fd.Message()
	if fd.IsMap() {
		md = fd.MapValue().Message()
	}
	if md == nil || strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
		return nil
	}
	return md
}

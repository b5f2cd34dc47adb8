// Package fields states how this version treats every field of Istio's configuration. For example, the field is acted
// on, or setting it is reported as a problem, or it has no effect for sidecars. table.txt covers the fields of
// istio.io/api, and names.txt covers annotations, labels and node metadata. deploy/docs/compatibility.md is generated
// from both tables. store/normal reports problems according to the tables.
//
// Owns: nothing; the tables are immutable. Reads: descriptors of istio.io/api. Never: uses objects of Kubernetes or
// types of Envoy.
package fields

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
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

// Mark is the treatment of a field.
type Mark string

// The marks, as the tables spell them.
const (
	Acted    Mark = "acted"    // the field changes the configuration of proxies, or other output
	Reported Mark = "reported" // the field is ignored, and each object that sets it gets a problem.NotSupported
	Whole    Mark = "whole"    // the field is ignored, and each object of the field's kind gets a problem
	Closed   Mark = "closed"   // ignoring the field would be unsafe; a use of it is refused or reported, as Text says
	None     Mark = "none"     // the field has no effect in a mesh of sidecars
)

// Row is the treatment of one field, annotation, label or key of node metadata. Rows must not be changed.
type Row struct {
	Message protoreflect.FullName // full name of the message with the field; in names.txt: the section
	Field   string                // JSON name; in names.txt: the name of the annotation, label or key
	Value   string                // for an enum: name of the value that the row is about; empty: all values
	// Within restricts the row to fields below another field, written Message.field without the package. For these
	// fields it replaces the general row. If Within is empty, the row is the general row.
	Within string
	Mark   Mark
	Scene  string // for an acted field: the scene (cmd/internal/scene) that tests it, if any
	Test   string // for an acted field that no scene can test: its Go test, as folder and name
	Text   string // if not acted: reason and actual behaviour; with Test: what acts on the field, or empty
}

// String returns the field with its message, in the form MESSAGE.FIELD[=VALUE][ in MESSAGE.FIELD].
func (r *Row) String() string {
	return string(r.Message) + "." + r.key()
}

// key returns the field as in a line of the table.
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

// Root is a kind of object, or a message of the mesh configuration.
type Root struct {
	Name    string // kind of the object, or name of the mesh message, for texts and look-ups
	Message protoreflect.MessageDescriptor
}

// Roots returns the messages with which configuration begins: the specs of Istio's kinds, MeshConfig and MeshNetworks.
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

// Of returns the row of a field. within lists the fields above the field, the nearest last. A row that is restricted to
// one of these fields (Row.Within) has precedence. For an enum, value is the name of the field's value; otherwise value
// is empty. The result is nil if the table has no row for the field.
//
// Callers must not descend below a field with the mark Reported or None. Below such a field, the rows that Of returns
// are for other places in which the message type occurs.
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

// nameOf returns a field in the form of Row.Within.
func nameOf(fd protoreflect.FieldDescriptor) string {
	return short(fd.ContainingMessage().FullName()) + "." + fd.JSONName()
}

// short returns the name of a message without its package. Nested messages have dots.
func short(name protoreflect.FullName) string {
	parts := strings.Split(string(name), ".")
	first := slices.IndexFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' })
	return strings.Join(parts[max(first, 0):], ".")
}

// Rows yields all rows of table.txt, in their order.
func Rows() iter.Seq[*Row] { return slices.Values(table().all) }

// Unacted calls the function do for each field of a message that is set and has the mark Reported, in the order of the
// message type. path is the path of the message as users write it. do receives the path of the field, which begins with
// path, and the field's row. Fields below a field with the mark Reported or None are skipped.
func Unacted(m proto.Message, path string, do func(path string, row *Row)) {
	(&walk{do: do}).message(m.ProtoReflect(), path)
}

// walk is the state of a traversal of a message.
type walk struct {
	within []protoreflect.FieldDescriptor
	do     func(path string, row *Row)
}

// message visits the fields of a message that are set.
func (w *walk) message(m protoreflect.Message, path string) {
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); m.Has(fd) {
			w.field(fd, m.Get(fd), path+"."+fd.JSONName())
		}
	}
}

// field calls do for a field, if the field has the mark Reported, and visits the fields below it.
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
			w.message(v.List().Get(i).Message(), path+"["+strconv.Itoa(i)+"]")
		}
	default:
		w.message(v.Message(), path)
	}
	w.within = w.within[:len(w.within)-1]
}

// sortedKeys returns the keys of a map, sorted as texts.
func sortedKeys(m protoreflect.Map) (keys []protoreflect.MapKey) {
	m.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// Below returns the message type of a field, or of the elements of a list or map. It returns nil for scalars, and for
// messages of protobuf itself (google.protobuf).
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

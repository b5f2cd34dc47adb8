package meaning

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/store/cut"
)

// unordered contains the full names of list fields whose order has no effect in Envoy.
var unordered = func() map[protoreflect.FullName]bool {
	all := map[protoreflect.FullName]bool{}
	for _, name := range strings.Fields(`
		envoy.config.listener.v3.Listener.filter_chains envoy.config.listener.v3.Listener.additional_addresses
		envoy.config.listener.v3.FilterChainMatch.prefix_ranges envoy.config.listener.v3.FilterChainMatch.source_prefix_ranges
		envoy.config.listener.v3.FilterChainMatch.server_names envoy.config.listener.v3.FilterChainMatch.application_protocols
		envoy.config.listener.v3.FilterChainMatch.source_ports
		envoy.config.listener.v3.ListenerFilterChainMatchPredicate.MatchSet.rules
		envoy.config.route.v3.RouteConfiguration.virtual_hosts envoy.config.route.v3.VirtualHost.domains
		envoy.config.route.v3.RouteMatch.headers envoy.config.route.v3.RouteMatch.query_parameters
		envoy.config.route.v3.RouteMatch.dynamic_metadata envoy.config.route.v3.WeightedCluster.clusters
		envoy.config.route.v3.RouteAction.request_mirror_policies envoy.config.route.v3.RetryPolicy.retriable_status_codes
		envoy.config.endpoint.v3.ClusterLoadAssignment.endpoints envoy.config.endpoint.v3.LocalityLbEndpoints.lb_endpoints
		envoy.config.rbac.v3.Policy.permissions envoy.config.rbac.v3.Policy.principals
		envoy.config.rbac.v3.Permission.Set.rules envoy.config.rbac.v3.Principal.Set.ids
		envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.match_typed_subject_alt_names
		envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.match_subject_alt_names
		envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.verify_certificate_spki
		envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext.verify_certificate_hash
		envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.clusters
		envoy.extensions.filters.http.cors.v3.CorsPolicy.allow_origin_string_match`) {
		all[protoreflect.FullName(name)] = true
	}
	return all
}()

// maxDepth is the depth of nested messages beyond which encoded bytes are compared.
const maxDepth = 64

// same reports whether two messages mean the same. A nil message equals only another nil message.
func same(old, new proto.Message) bool {
	a, b := old.ProtoReflect(), new.ProtoReflect()
	return a.IsValid() == b.IsValid() && (proto.Equal(old, new) || digest(a, maxDepth) == digest(b, maxDepth))
}

// digest returns a text that is equal for messages of equal meaning. Lists whose order has no effect are sorted, and
// messages in an Any are decoded.
func digest(m protoreflect.Message, depth int) string { return digester{}.message(m, depth) }

// digester computes digests of messages.
type digester struct{ sets bool } // sets: the order of every list is ignored

// message returns the digest of a message. At depth 0, it is the encoded message.
func (d digester) message(m protoreflect.Message, depth int) string {
	if depth == 0 {
		raw, _ := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m.Interface())
		return string(raw)
	}
	if inner := unpack(m); inner != nil {
		return string(inner.Descriptor().FullName()) + d.message(inner, depth-1)
	}
	var b strings.Builder
	b.WriteByte('{')
	for _, fd := range fieldsOf(m, m) {
		fmt.Fprintf(&b, "%d:", fd.Number())
		v := m.Get(fd)
		switch {
		case fd.IsMap():
			for _, key := range keysOf(v.Map(), v.Map()) {
				fmt.Fprintf(&b, "%q=%s,", key.String(), d.value(fd.MapValue(), v.Map().Get(key), depth))
			}
		case fd.IsList():
			elements := d.elements(fd, v.List(), depth)
			if d.sets || unordered[fd.FullName()] {
				slices.Sort(elements)
			}
			fmt.Fprintf(&b, "%q", elements)
		default:
			b.WriteString(d.value(fd, v, depth))
		}
		b.WriteByte(';')
	}
	fmt.Fprintf(&b, "%x}", m.GetUnknown())
	return b.String()
}

// value returns the digest of one value.
func (d digester) value(fd protoreflect.FieldDescriptor, v protoreflect.Value, depth int) string {
	if fd.Message() != nil {
		return d.message(v.Message(), depth-1)
	}
	return fmt.Sprintf("%q", v.String())
}

// elements returns the digest of each element of a list, in order.
func (d digester) elements(fd protoreflect.FieldDescriptor, l protoreflect.List, depth int) []string {
	all := make([]string, l.Len())
	for i := range all {
		all[i] = d.value(fd, l.Get(i), depth)
	}
	return all
}

// unpack returns the message in an Any. The result is nil if m is not an Any, or if this build does not know the type
// in the Any.
func unpack(m protoreflect.Message) protoreflect.Message {
	packed, is := m.Interface().(*anypb.Any)
	if !is {
		return nil
	}
	inner, err := packed.UnmarshalNew()
	if err != nil {
		return nil
	}
	return inner.ProtoReflect()
}

// fieldsOf returns the fields that are set in at least one of two messages of one type, sorted by number.
func fieldsOf(a, b protoreflect.Message) (all []protoreflect.FieldDescriptor) {
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); a.Has(fd) || b.Has(fd) {
			all = append(all, fd)
		}
	}
	slices.SortFunc(all, func(x, y protoreflect.FieldDescriptor) int { return int(x.Number() - y.Number()) })
	return all
}

// keysOf returns the keys of two maps, sorted by their text.
func keysOf(a, b protoreflect.Map) []protoreflect.MapKey {
	keys := map[string]protoreflect.MapKey{}
	for _, m := range []protoreflect.Map{a, b} {
		m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
			keys[k.String()] = k
			return true
		})
	}
	var all []protoreflect.MapKey
	for _, text := range slices.Sorted(maps.Keys(keys)) {
		all = append(all, keys[text])
	}
	return all
}

// differences returns the differences of two messages. Most have the form "path old -> new", with the path of the field
// in Envoy's API. For messages of equal meaning the result is nil. For messages of different types, the only difference
// is the name of the type.
func differences(old, new proto.Message) []string {
	if same(old, new) {
		return nil
	}
	if a, b := old.ProtoReflect().Descriptor(), new.ProtoReflect().Descriptor(); a != b {
		return []string{string(a.FullName()) + " -> " + string(b.FullName())}
	}
	d := &differ{}
	d.message("", old.ProtoReflect(), new.ProtoReflect(), maxDepth)
	if len(d.parts) == 0 { // unknown fields
		d.parts = append(d.parts, "other fields change")
	}
	return d.parts
}

// differ collects differences.
type differ struct{ parts []string }

// add adds a difference between the old and the new value of a field. Texts of different values may be equal, because
// long texts are cut. If they are equal, the difference only states that the field changes.
func (d *differ) add(path, old, new string) {
	if old == new { // clipped
		d.parts = append(d.parts, path+" changes")
		return
	}
	d.parts = append(d.parts, path+" "+orUnset(old)+" -> "+orUnset(new))
}

// orUnset returns a text, or "unset".
func orUnset(text string) string {
	if text == "" {
		return "unset"
	}
	return text
}

// join appends the name of a field to a path.
func join(path string, fd protoreflect.FieldDescriptor) string {
	return strings.TrimPrefix(path+"."+string(fd.Name()), ".")
}

// message compares two valid messages of one type.
func (d *differ) message(path string, old, new protoreflect.Message, depth int) {
	if digest(old, depth) == digest(new, depth) {
		return
	}
	if depth == 0 {
		d.add(path, "", "")
		return
	}
	if a, b := unpack(old), unpack(new); a != nil && b != nil {
		if a.Descriptor() == b.Descriptor() {
			d.message(path, a, b, depth-1)
		} else {
			d.add(path, string(a.Descriptor().Name()), string(b.Descriptor().Name()))
		}
		return
	}
	if wellKnown(old.Descriptor().FullName()) {
		d.add(path, brief(old.Interface()), brief(new.Interface()))
		return
	}
	for _, fd := range fieldsOf(old, new) {
		at, a, b := join(path, fd), old.Get(fd), new.Get(fd)
		switch {
		case cut.Field(old, fd) || cut.Field(new, fd):
			d.credential(at, old.Has(fd), new.Has(fd), !a.Equal(b))
		case fd.IsMap():
			d.maps(at, fd.MapValue(), a.Map(), b.Map(), depth)
		case fd.IsList():
			d.lists(at, fd, a.List(), b.List(), depth)
		case fd.Message() != nil && old.Has(fd) && new.Has(fd):
			d.message(at, a.Message(), b.Message(), depth-1)
		case fd.Message() != nil || old.Has(fd) != new.Has(fd) || !a.Equal(b):
			d.add(at, optional(fd, a, old.Has(fd)), optional(fd, b, new.Has(fd)))
		}
	}
}

// wellKnown reports whether a message of protobuf's standard library is one value, such as a Duration.
func wellKnown(name protoreflect.FullName) bool {
	return name.Parent() == "google.protobuf" && name.Name() != "Struct" && name.Name() != "Value" && name.Name() != "ListValue"
}

// optional returns the text of a field's value, or an empty text if the field is not set.
func optional(fd protoreflect.FieldDescriptor, v protoreflect.Value, has bool) string {
	if !has {
		return ""
	}
	return valueText(fd, v)
}

// valueText returns the text of one value.
func valueText(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case fd.Message() != nil:
		return brief(v.Message().Interface())
	case fd.Enum() != nil:
		if value := fd.Enum().Values().ByNumber(v.Enum()); value != nil {
			return string(value.Name())
		}
	case fd.Kind() == protoreflect.BytesKind:
		return plural(len(v.Bytes()), "byte")
	}
	return limit(cut.String(v.String()), maxValue)
}

// maps compares two maps by key.
func (d *differ) maps(path string, fd protoreflect.FieldDescriptor, old, new protoreflect.Map, depth int) {
	for _, key := range keysOf(old, new) {
		at := fmt.Sprintf("%s[%s]", path, key.String())
		if cut.Key(key.String()) && isText(fd) {
			d.credential(at, old.Has(key), new.Has(key), old.Has(key) && new.Has(key) && !old.Get(key).Equal(new.Get(key)))
			continue
		}
		d.element(at, fd, old.Get(key), new.Get(key), old.Has(key), new.Has(key), depth)
	}
}

// element compares two elements of a map or a list. The parameters hadOld and hasNew report whether the old and the new
// element exist.
func (d *differ) element(path string, fd protoreflect.FieldDescriptor, old, new protoreflect.Value, hadOld, hasNew bool, depth int) {
	switch {
	case hadOld && hasNew && fd.Message() != nil:
		d.message(path, old.Message(), new.Message(), depth-1)
	case hadOld != hasNew || !old.Equal(new):
		d.add(path, optional(fd, old, hadOld), optional(fd, new, hasNew))
	}
}

// lists compares two lists. Messages with unique names are compared by name. Lists that the variable unordered
// contains, and lists of plain values, are compared as multisets. All other lists are compared by index.
func (d *differ) lists(path string, fd protoreflect.FieldDescriptor, old, new protoreflect.List, depth int) {
	a, b := namesOf(fd, old), namesOf(fd, new)
	switch {
	case a != nil && b != nil:
		d.named(path, fd, old, new, a, b, depth)
	case unordered[fd.FullName()] || fd.Message() == nil:
		d.sets(path, fd, old, new, depth)
	default:
		for i := range max(old.Len(), new.Len()) {
			at := fmt.Sprintf("%s[%d]", path, i)
			d.element(at, fd, get(old, i), get(new, i), i < old.Len(), i < new.Len(), depth)
		}
	}
}

// get returns an element, or an invalid value beyond the end.
func get(l protoreflect.List, i int) protoreflect.Value {
	if i < l.Len() {
		return l.Get(i)
	}
	return protoreflect.Value{}
}

// namesOf returns the names of the messages in a list. It returns nil if the elements are not messages, if a message
// has no name, or if a name occurs twice.
func namesOf(fd protoreflect.FieldDescriptor, l protoreflect.List) []string {
	if fd.Message() == nil || fd.Message().Fields().ByName("name") == nil {
		return nil
	}
	name := fd.Message().Fields().ByName("name")
	if name.Kind() != protoreflect.StringKind || name.IsList() {
		return nil
	}
	all, seen := make([]string, 0, l.Len()), map[string]bool{"": true}
	for i := range l.Len() {
		n := l.Get(i).Message().Get(name).String()
		if seen[n] {
			return nil
		}
		seen[n] = true
		all = append(all, n)
	}
	return all
}

// named compares the elements of two lists by name. It also compares their order if the order has an effect. The
// parameters a and b are the names in old and new.
func (d *differ) named(path string, fd protoreflect.FieldDescriptor, old, new protoreflect.List, a, b []string, depth int) {
	before, after := places(a), places(b)
	for i, name := range a {
		j, both := after[name]
		if at := path + "[" + shortFilter(name) + "]"; !both {
			d.parts = append(d.parts, at+" gone")
		} else {
			d.element(at, fd, old.Get(i), new.Get(j), true, true, depth)
		}
	}
	for _, name := range b {
		if _, both := before[name]; !both {
			d.parts = append(d.parts, path+"["+shortFilter(name)+"] new")
		}
	}
	if !unordered[fd.FullName()] {
		if before, after := inBoth(a, b); !slices.Equal(before, after) {
			d.add("order of "+path, list(before), list(after))
		}
	}
}

// places maps the elements of a list to their indices. An element that occurs repeatedly gets its last index.
func places(all []string) map[string]int {
	at := make(map[string]int, len(all))
	for i, name := range all {
		at[name] = i
	}
	return at
}

// inBoth returns the elements that both lists have, in the order of each list.
func inBoth(a, b []string) (before, after []string) {
	old, new := places(a), places(b)
	for _, name := range a {
		if _, both := new[name]; both {
			before = append(before, name)
		}
	}
	for _, name := range b {
		if _, both := old[name]; both {
			after = append(after, name)
		}
	}
	return before, after
}

// sets compares two lists as multisets. If the elements are equal and their order has an effect, it compares the order.
func (d *differ) sets(path string, fd protoreflect.FieldDescriptor, old, new protoreflect.List, depth int) {
	gone, added := without(fd, old, new, depth), without(fd, new, old, depth)
	switch {
	case len(gone) == 1 && len(added) == 1 && fd.Message() != nil:
		d.message(path, gone[0].Message(), added[0].Message(), depth-1)
	case len(gone)+len(added) > 0:
		text := func(all []protoreflect.Value) string {
			var texts []string
			for _, v := range all {
				texts = append(texts, valueText(fd, v))
			}
			return list(texts)
		}
		d.add(path, text(gone), text(added))
	case !unordered[fd.FullName()] && !slices.Equal(digester{}.elements(fd, old, depth), digester{}.elements(fd, new, depth)):
		d.parts = append(d.parts, "order of "+path+" changes")
	}
}

package lookup

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// row contains the functions of one joined kind. Other objects look up the objects of a joined kind, as EndpointSlices
// look up Pods. These other objects are the readers. The parsed form of an object is the value that parse returns.
type row struct {
	// source is the source of the kind's origin, for instance origin.DNS, if the leader itself makes the objects. It is
	// empty if sources of configuration emit the objects.
	source string
	// only is a filter: the row applies to the objects for which the filter returns true. If the filter is nil, the row
	// applies to all objects of the kind.
	only func(n *normal.Normalizer, id object.ID) bool
	// parse parses an object. before is the last good parsed form, or nil. A nil result means that the object is
	// invalid.
	parse func(n *normal.Normalizer, o *object.Object, before any) (any, []object.Problem)
	// unread returns the parsed form of an object without any valid version. nil: such an object has no parsed form.
	unread func() any
	// equal reports whether two parsed forms have the same effect on their readers. If so, the earlier parsed form
	// stays, and no reader is marked.
	equal func(a, b any) bool
	// readers calls mark with further names, beside the object's ID, under which a changed parsed form is looked up. It
	// runs after index. before is nil for a new object, and after is nil for a deleted one. nil: no further names.
	readers func(x *indexes, id object.ID, before, after any, mark func(name object.ID))
	// index updates the indexes after a change of a parsed form. nil: no index contains the kind.
	index func(x *indexes, id object.ID, before, after any)
	// records reports whether the object's own records may differ after a change of its parsed form. before is nil for
	// a new object, and after is never nil. nil: objects of the kind have no records.
	records func(before, after any) bool
}

type groupKind struct{ group, kind string }

// rows lists the joined kinds.
var rows = map[groupKind]*row{
	{"", "Pod"}: {parse: parsePod, equal: equal((*normal.Pod).Equal),
		readers: podReaders, index: indexPod, records: hasAddress},
	{"", "Node"}:                     {parse: parseNode, equal: equal((*normal.Node).Equal), readers: nodeReaders, index: indexNode},
	{"", "Namespace"}:                {parse: parseNamespace, equal: equal((*normal.Namespace).Equal), records: comes},
	{model.GroupRBAC, "Role"}:        {parse: parseRole, equal: equal((*normal.Role).Equal)},
	{model.GroupRBAC, "ClusterRole"}: {parse: parseRole, equal: equal((*normal.Role).Equal)},
	{"", "ConfigMap"}: {only: (*normal.Normalizer).IsMesh, parse: parseMesh, unread: unreadMesh, equal: never,
		readers: meshReaders, index: indexMesh, records: always},
	{object.OwnGroup, "AutomaticAddresses"}: {source: origin.Addresses, parse: parseAutomatic, equal: equal(sameAutomatic),
		readers: automaticReaders, index: indexAutomatic},
	{object.OwnGroup, "ResolvedName"}: {source: origin.DNS, parse: parseResolved, equal: equal(slices.Equal[[]string])},
	{object.OwnGroup, "KeySet"}:       {source: origin.JWKS, parse: parseKeys, equal: equal(func(a, b normal.Keys) bool { return a == b })},
}

// rowOf returns the row that applies to an object, or nil.
func rowOf(n *normal.Normalizer, id object.ID) *row {
	r := rows[groupKind{id.Group, id.Kind}]
	if r == nil || r.only != nil && !r.only(n, id) || r.source != "" && r.source != id.Origin.Source() {
		return nil
	}
	return r
}

// FromLeader reports whether the leader itself makes the objects of an origin. These are automatic addresses, resolved
// host names and key sets.
func FromLeader(o origin.Origin) bool {
	for _, r := range rows {
		if r.source != "" && r.source == o.Source() {
			return true
		}
	}
	return false
}

// as converts a parsed form to its type. The result is the zero value if parsed is nil.
func as[V any](parsed any) V {
	v, _ := parsed.(V)
	return v
}

func equal[V any](same func(a, b V) bool) func(a, b any) bool {
	return func(a, b any) bool { return same(as[V](a), as[V](b)) }
}

func never(any, any) bool { return false }

func always(any, any) bool { return true }

// comes reports whether an object is new. The record of a Namespace states only that it exists.
func comes(before, _ any) bool { return before == nil }

// hasAddress reports whether a Pod has or had an address. A Pod without an address has no record.
func hasAddress(before, after any) bool {
	had := as[*normal.Pod](before)
	return as[*normal.Pod](after).Address != "" || had != nil && had.Address != ""
}

// orNil returns a parsed form, or an untyped nil if the pointer is nil.
func orNil[V any](parsed *V) any {
	if parsed == nil {
		return nil
	}
	return parsed
}

func parsePod(_ *normal.Normalizer, o *object.Object, _ any) (any, []object.Problem) {
	pod, problems := normal.ParsePod(o)
	return orNil(pod), problems
}

func podReaders(x *indexes, id object.ID, before, after any, mark func(name object.ID)) {
	asked := x.pods.asked[podPlace{id.Origin, id.Namespace}] != nil
	if !asked && x.owners.asked == 0 {
		return
	}
	had, has := addressesOf(as[*normal.Pod](before)), addressesOf(as[*normal.Pod](after))
	for _, address := range slices.Concat(had, has) {
		mark(normal.PodAtID(id, address))
	}
	if !slices.Equal(had, has) {
		x.owners.names(slices.Concat(had, has), mark)
	}
}

func parseNode(_ *normal.Normalizer, o *object.Object, _ any) (any, []object.Problem) {
	return orNil(normal.ParseNode(o)), nil
}

func nodeReaders(_ *indexes, id object.ID, before, after any, mark func(name object.ID)) {
	if !as[*normal.Node](after).SameGateway(as[*normal.Node](before)) {
		mark(normal.AllNodes(id.Origin))
	}
}

func parseNamespace(_ *normal.Normalizer, o *object.Object, _ any) (any, []object.Problem) {
	namespace, problems := normal.ParseNamespace(o)
	return orNil(namespace), problems
}

func parseRole(_ *normal.Normalizer, o *object.Object, _ any) (any, []object.Problem) {
	role, problems := normal.ParseRole(o)
	return orNil(role), problems
}

func parseAutomatic(_ *normal.Normalizer, o *object.Object, _ any) (any, []object.Problem) {
	return normal.ParseAutomatic(o), nil
}

func sameAutomatic(a, b map[string][]string) bool {
	return maps.EqualFunc(a, b, slices.Equal[[]string])
}

func automaticReaders(_ *indexes, _ object.ID, before, after any, mark func(name object.ID)) {
	for _, parsed := range []any{before, after} {
		for name := range automaticNames(parsed) {
			mark(name)
		}
	}
}

// automaticNames yields the normal.AutomaticAtID of each valid address in the automatic addresses of a ServiceEntry.
func automaticNames(parsed any) iter.Seq[object.ID] {
	return func(yield func(object.ID) bool) {
		for _, addresses := range as[map[string][]string](parsed) {
			for _, text := range addresses {
				if a, err := netip.ParseAddr(text); err == nil && !yield(normal.AutomaticAtID(a)) {
					return
				}
			}
		}
	}
}

func parseResolved(_ *normal.Normalizer, o *object.Object, _ any) (any, []object.Problem) {
	return normal.ParseResolved(o), nil
}

func parseKeys(_ *normal.Normalizer, o *object.Object, _ any) (any, []object.Problem) {
	return normal.ParseKeys(o), nil
}

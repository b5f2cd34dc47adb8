package xds

import (
	"bytes"
	"slices"

	"navarch.io/navarch/store/protowalk"
)

// mention holds the names that Resource.Names finds in one resource. It is computed at the first use, and all streams
// share it.
type mention struct {
	names  map[string]struct{}
	guards bool // the result of Guards
}

// Names reports whether a string field of the body equals name, the name of a cluster or a secret. Names decodes
// without a schema, so it also compares fields of type bytes. It always returns false if name looks like a host, an
// address, a path or a type URL (MayName). It does not search for them, because route configurations contain many such
// strings. It returns false for a nil Resource.
func (r *Resource) Names(name string) bool {
	if r == nil {
		return false
	}
	_, is := r.mentions().names[name]
	return is
}

// EachName iterates over all strings for which Names returns true, in any order. Some of these strings may not be names
// of clusters or secrets. The Resource must not be nil.
func (r *Resource) EachName(yield func(string) bool) {
	for name := range r.mentions().names {
		if !yield(name) {
			return
		}
	}
}

// NumNames returns the number of names that EachName yields. The Resource must not be nil.
func (r *Resource) NumNames() int { return len(r.mentions().names) }

// Guards reports whether the body has a filter that authorises or authenticates (RBAC, JWT, ext_authz), or a TLS
// context. Guards returns false for a nil Resource.
func (r *Resource) Guards() bool { return r != nil && r.mentions().guards }

// guards are parts of the type URLs of filters that authorise or authenticate, and of TLS contexts.
var guards = [][]byte{
	[]byte(".filters.http.rbac."), []byte(".filters.network.rbac."), []byte(".jwt_authn."), []byte(".ext_authz."),
	[]byte(".transport_sockets.tls."),
}

// mentions returns the names in the resource, which it computes at the first call.
func (r *Resource) mentions() *mention {
	if known := r.mentioned.Load(); known != nil {
		return known
	}
	m := &mention{names: map[string]struct{}{}}
	collect(r.head, maxDepth, func(name string) { m.names[name] = struct{}{} })
	m.guards = guarded(r.head)
	for _, f := range r.tail {
		of := f.mentions()
		for _, name := range of.names {
			m.names[name] = struct{}{}
		}
		m.guards = m.guards || of.guards
	}
	r.mentioned.Store(m)
	return m
}

// guarded reports whether encoded bytes have a filter that authorises or authenticates, or a TLS context.
func guarded(encoded []byte) bool {
	return slices.ContainsFunc(guards, func(g []byte) bool { return bytes.Contains(encoded, g) })
}

// mentioned holds the names in a fragment, perhaps repeated, and the result of guarded for its bytes.
type mentioned struct {
	names  []string
	guards bool
}

// mentions searches the fragment on the first call, and keeps the result.
func (f *Fragment) mentions() *mentioned {
	if known := f.found.Load(); known != nil {
		return known
	}
	m := &mentioned{guards: guarded(f.Bytes)}
	collect(f.Bytes, maxDepth, func(name string) { m.names = append(m.names, name) })
	f.found.Store(m)
	return m
}

// maxDepth is the number of levels of nested messages that are searched. Envoy's protobuf decoder (C++) has the same
// limit.
const maxDepth = 100

// collect calls the function found with every string of an encoded message that may be a name. The argument depth is
// the number of levels of nested messages to search. Without a schema, strings and messages cannot be distinguished, so
// every length-delimited field is searched as both. Bytes that are not a message are searched up to the first decoding
// error.
func collect(message []byte, depth int, found func(string)) {
	_ = protowalk.Each(message, func(f protowalk.Field) error {
		if f.Bytes == nil {
			return nil
		}
		if mayName(f.Bytes) {
			found(string(f.Bytes))
		}
		if depth > 0 {
			collect(f.Bytes, depth-1, found)
		}
		return nil
	})
}

// maxNamed is the maximum length in bytes of a name that Names can find.
const maxNamed = 512

// MayName reports whether Names can find a name. The name must have 1 to 512 bytes of printable ASCII without spaces.
// In addition it must meet at least one of these conditions:
//
//   - It contains "|" or "://".
//   - It begins with "outbound_.", like the names that SNICluster returns.
//   - It contains no character of "./:*". Hosts, addresses, paths and type URLs contain one of these characters.
func MayName(name string) bool { return mayName([]byte(name)) }

// mayName implements MayName.
func mayName(s []byte) bool {
	if len(s) == 0 || len(s) > maxNamed {
		return false
	}
	for _, c := range s {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return bytes.IndexByte(s, '|') >= 0 || bytes.Contains(s, []byte("://")) || bytes.HasPrefix(s, []byte(sniPrefix)) ||
		!bytes.ContainsAny(s, "./:*")
}

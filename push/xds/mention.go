package xds

import (
	"bytes"

	"navarch.io/navarch/store/protowalk"
)

// mention holds the names in a resource. They are found when the first stream asks for them, and shared by all streams.
type mention struct {
	names  map[string]struct{}
	guards bool
}

// Names says whether the body has a string field with the name of a cluster or a secret. Names that look like a host,
// an address, a path or a type URL are not found, because route configurations are full of these.
func (r *Resource) Names(name string) bool {
	if r == nil {
		return false
	}
	_, is := r.mentions().names[name]
	return is
}

// EachName iterates over the names that Names finds, in any order, and over some that are of other things.
func (r *Resource) EachName(yield func(string) bool) {
	for name := range r.mentions().names {
		if !yield(name) {
			return
		}
	}
}

// NumNames is the number of names that EachName yields.
func (r *Resource) NumNames() int { return len(r.mentions().names) }

// Guards says whether the body has a filter that authorises or authenticates (RBAC, JWT, ext_authz), or TLS. False of
// nil.
func (r *Resource) Guards() bool { return r != nil && r.mentions().guards }

// guards are parts of the type URLs of filters that authorise or authenticate, and of TLS contexts.
var guards = [][]byte{[]byte(".filters.http.rbac."), []byte(".filters.network.rbac."), []byte(".jwt_authn."), []byte(".ext_authz."), []byte(".transport_sockets.tls.")}

func (r *Resource) mentions() *mention {
	if known := r.mentioned.Load(); known != nil {
		return known
	}
	m := &mention{names: map[string]struct{}{}}
	collect(r.head, maxDepth, func(name string) { m.names[name] = struct{}{} })
	for _, f := range r.tail {
		for _, name := range f.names() {
			m.names[name] = struct{}{}
		}
	}
	for _, g := range guards {
		m.guards = m.guards || bytes.Contains(r.head, g)
	}
	r.mentioned.Store(m)
	return m
}

// names are the names in a fragment, found out once.
func (f *Fragment) names() []string {
	if known := f.named.Load(); known != nil {
		return *known
	}
	var names []string
	collect(f.Bytes, maxDepth, func(name string) { names = append(names, name) })
	f.named.Store(&names)
	return names
}

// maxDepth is how many messages inside of each other are searched; protobuf's own limit is the same.
const maxDepth = 100

// collect calls found with every string of an encoded message that may be a name. Without a schema a string cannot be
// told from a message, so every field of a length is searched as both; what is no message ends where it is found to be
// none.
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

// maxNamed is the length of the longest name that is found, bytes.
const maxNamed = 512

// MayName says whether Names finds a name.
func MayName(name string) bool { return mayName([]byte(name)) }

// mayName says whether a string may be the name of a cluster or a secret.
func mayName(s []byte) bool {
	if len(s) == 0 || len(s) > maxNamed {
		return false
	}
	for _, c := range s {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return bytes.IndexByte(s, '|') >= 0 || bytes.Contains(s, []byte("://")) || !bytes.ContainsAny(s, "./:*")
}

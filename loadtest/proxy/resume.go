package proxy

import (
	"sync"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/xds"
)

// fragments are encoded parts of requests that many proxies share: the initial versions of one page, and 64
// neighbouring names of a subscription. Otherwise each proxy with 2,500 resources would, in a reconnect storm, encode
// 234 KB and keep them until the server's window opens.
type fragments struct {
	mu    sync.Mutex
	pages map[pageKey][]byte
	words map[wordKey][]byte
	size  int // bytes
}

type pageKey struct {
	t    xds.Type
	at   int
	page unique.Handle[page]
}

type wordKey struct {
	t    xds.Type
	at   int
	word uint64
}

// maxFragments limits the bytes of all fragments; above it all are discarded.
const maxFragments = 32 << 20

// get returns the fragment of a key, and creates it if necessary.
func get[K comparable](q *fragments, m *map[K][]byte, key K, make1 func() []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, ok := (*m)[key]
	if ok {
		return b
	}
	if b = make1(); q.size+len(b) > maxFragments {
		q.pages, q.words, q.size = nil, nil, 0
	}
	if *m == nil {
		*m = map[K][]byte{}
	}
	(*m)[key] = b
	q.size += len(b)
	return b
}

// initialVersions returns the encoded initial_resource_versions of one page.
func (f *Fleet) initialVersions(t xds.Type, at int, h unique.Handle[page]) []byte {
	return get(&f.fragments, &f.fragments.pages, pageKey{t, at, h}, func() []byte {
		var b []byte
		for i, id := range h.Value() {
			if v := f.names.version(id); id != 0 && v != nil {
				b = appendClaim(b, f.names.at(t, uint32(at*64+i)).name, v.given())
			}
		}
		return b
	})
}

// subscription returns the encoded resource_names_subscribe of 64 neighbouring names.
func (f *Fleet) subscription(t xds.Type, at int, word uint64) []byte {
	return get(&f.fragments, &f.fragments.words, wordKey{t, at, word}, func() []byte {
		var b []byte
		for i := range (bitset{word}).all() {
			b = appendText(b, requestSubscribe, f.names.at(t, uint32(at*64)+i).name)
		}
		return b
	})
}

func (f *Fleet) subscriptions(t xds.Type, of bitset) [][]byte {
	var rope [][]byte
	for at, word := range of {
		if word != 0 {
			rope = append(rope, f.subscription(t, at, word))
		}
	}
	return rope
}

// appendClaim appends one entry of initial_resource_versions.
func appendClaim(b []byte, name, version string) []byte {
	b = protowire.AppendTag(b, requestInitial, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeText(1, name)+sizeText(2, version)))
	return appendText(appendText(b, 1, name), 2, version)
}

// claimed returns all claims of a type. Proxies that have rejected a resource, or forge versions, have claims of their
// own.
func (s *sim) claimed(t xds.Type, forge bool) [][]byte {
	held := &s.held[t]
	held.seal()
	var rope [][]byte
	if !forge && len(s.prior[t]) == 0 {
		for at, h := range held.pages {
			if h != noPage {
				rope = append(rope, s.fleet.initialVersions(t, at, h))
			}
		}
		return rope
	}
	var b []byte
	for index, id := range held.all() {
		if text, ok := s.claim(t, index, id, forge); ok {
			b = appendClaim(b, s.fleet.names.at(t, index).name, text)
		}
	}
	return append(rope, b)
}

// resume sends the claims of the proxy for every type that it uses, in the order of first use (1.4).
func (s *sim) resume(node []byte) {
	if s.sotw {
		s.resumeSotW(node)
		return
	}
	forge := s.again.Forge || s.shape.ForgeVersions
	s.again.Forge = false
	for _, t := range s.used {
		r := request{node: node, more: s.claimed(t, forge)}
		node = nil
		r.more = append(r.more, s.fleet.subscriptions(t, s.subs[t])...)
		lacking := s.subs[t]
		if !forge {
			lacking = s.held[t].lacks(lacking)
		}
		for index := range lacking.all() {
			s.dependencies[t].ask(index)
			s.waiting[t].add(index)
		}
		if forge && t.Wildcard() { // forged claims: these resources must be sent
			for index := range s.held[t].all() {
				s.dependencies[t].ask(index)
			}
		}
		s.ask(t, r, s.subs[t])
		// A type whose resources the proxy holds needs no answer. An empty wildcard, whose stream ended before the first
		// response, needs one.
		s.answered[t] = !t.Wildcard() || s.held[t].count > 0
	}
}

// claim returns the version of a name for initial_resource_versions. For a resource of a rejected response it is the
// previous version (2).
func (s *sim) claim(t xds.Type, index, id uint32, forge bool) (string, bool) {
	v := s.fleet.names.version(id)
	if was, ok := s.prior[t][index]; ok {
		v = was
	}
	if forge {
		return "forged", true
	}
	if v == nil {
		return "", false
	}
	return v.given(), true
}

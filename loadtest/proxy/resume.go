package proxy

import (
	"sync"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/xds"
)

// fragments are encoded pieces of requests that many proxies send alike: the initial versions of one page, and 64
// neighbouring names of a subscription. A reconnect storm of proxies with 2,500 resources each would otherwise encode, and
// hold until the server's window lets it go, 234 KB a proxy.
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

// maxFragments is how many bytes of fragments are kept before all are made again.
const maxFragments = 32 << 20

// get gives the piece of a key, made if it is not there.
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

// initialVersions is the initial_resource_versions of one page, encoded.
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

// subscription is the resource_names_subscribe of 64 neighbouring names, encoded.
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

// appendClaim is one entry of initial_resource_versions.
func appendClaim(b []byte, name, version string) []byte {
	b = protowire.AppendTag(b, requestInitial, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(sizeText(1, name)+sizeText(2, version)))
	return appendText(appendText(b, 1, name), 2, version)
}

// claimed is all claims of a type. Those of a proxy that has refused something, or forges, are its own.
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

// resume claims what the proxy has: every type that it uses, in the order of first use (1.4).
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
		if forge && t.Wildcard() { // it lied about these: they have to be sent
			for index := range s.held[t].all() {
				s.dependencies[t].ask(index)
			}
		}
		s.ask(t, r, s.subs[t])
		// Nothing needs to come of what is held. A wildcard that holds nothing, since its stream ended before the first response, waits for it.
		s.answered[t] = !t.Wildcard() || s.held[t].count > 0
	}
}

// claim is the version of a name that goes into initial_resource_versions: of what came with a refused response the one
// that was held before (2).
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

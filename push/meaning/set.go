package meaning

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// maxDecoded limits the total encoded size of the resources whose messages a Decoder stores, in bytes.
const maxDecoded = 64 << 20

// Decoder decodes the resources of planned sets. A planned set is the configuration of one view, which is a group of
// proxies. The Decoder stores the messages, because several views may share a resource. When their total encoded size
// exceeds 64 MiB (maxDecoded), it drops all messages except the newest. The zero Decoder is ready for use. A Decoder
// and its Sets are not safe for concurrent use.
type Decoder struct {
	known map[*xds.Resource]proto.Message
	bytes int
}

// decode decodes a resource without its confidential parts. For nil it returns nil. It fails if the body does not
// decode, or if a credential cannot be removed. Both are faults of the code that built the resource.
func (d *Decoder) decode(r *xds.Resource) (proto.Message, error) {
	if r == nil {
		return nil, nil
	}
	if m, is := d.known[r]; is {
		return m, nil
	}
	m, err := inspect.Message(r)
	if err != nil {
		return nil, err
	}
	if d.bytes += r.Size(); d.known == nil || d.bytes > maxDecoded {
		d.known, d.bytes = map[*xds.Resource]proto.Message{}, r.Size()
	}
	d.known[r] = m
	return m, nil
}

// Message decodes a resource without its confidential parts. It returns nil for nil, and for a resource that cannot be
// decoded. The result may be shared, and is read-only.
func (d *Decoder) Message(r *xds.Resource) proto.Message {
	m, _ := d.decode(r)
	return m
}

// Set returns a Set that decodes the resources of a planned set on demand. A nil argument stands for the empty set.
// Resources that cannot be decoded are absent. The method All of the result sorts by name.
func (d *Decoder) Set(s *manifest.Set) Set { return planned{d, s} }

// planned implements Set. It decodes the resources of a planned set on demand.
type planned struct {
	*Decoder
	set *manifest.Set
}

// Message implements Set.
func (p planned) Message(t xds.Type, name string) proto.Message {
	if p.set == nil {
		return nil
	}
	return p.Decoder.Message(p.set.Types[t].Get(name))
}

// All implements Set. The resources are sorted by name.
func (p planned) All(t xds.Type) iter.Seq[proto.Message] {
	return func(yield func(proto.Message) bool) {
		if p.set == nil {
			return
		}
		for _, r := range p.set.Types[t].Sorted() {
			if m, err := p.decode(r); err == nil && !yield(m) {
				return
			}
		}
	}
}

// Between returns the View of a change from one planned set to another. It sets only Pairs, Before and After. A nil
// argument stands for the empty set. Pairs are sorted by type, then by name. Between fails if a resource that differs
// cannot be decoded, which is a fault of the code that built it. The error names the resource, and the View is then
// incomplete.
func (d *Decoder) Between(before, after *manifest.Set) (View, error) {
	v := View{Before: d.Set(before), After: d.Set(after)}
	for t := range xds.NumTypes {
		var a, b manifest.Stack
		if before != nil {
			a = before.Types[t]
		}
		if after != nil {
			b = after.Types[t]
		}
		for _, of := range manifest.Diff(a, b) {
			p := Pair{Type: t, Name: of.Name}
			for i, r := range []*xds.Resource{of.Old, of.New} {
				if r != nil {
					p.Versions[i], p.Confidential = r.Version, p.Confidential || r.Confidential
				}
			}
			if p.Versions[0] == p.Versions[1] {
				continue
			}
			var err error
			if p.Old, err = d.decode(of.Old); err != nil {
				return v, err
			}
			if p.New, err = d.decode(of.New); err != nil {
				return v, err
			}
			v.Pairs = append(v.Pairs, p)
		}
	}
	return v, nil
}

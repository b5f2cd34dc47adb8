package meaning

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// maxDecoded is the maximum size of the resources that a Decoder remembers, in encoded bytes.
const maxDecoded = 64 << 20

// Decoder decodes the resources of planned sets. Each resource is decoded once, however many views have it. The zero
// Decoder is ready. It is not safe for concurrent use.
type Decoder struct {
	known map[*xds.Resource]proto.Message
	bytes int
}

// decode decodes a resource without its confidential parts; nil for nil. The error is a body that does not decode,
// which is a fault of the builders.
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

// Message decodes a resource without its confidential parts. It returns nil for nil, and for a resource that does not
// decode, which is a fault of the builders.
func (d *Decoder) Message(r *xds.Resource) proto.Message {
	m, _ := d.decode(r)
	return m
}

// Set returns the set that decodes the resources of a planned set when they are looked up; nil is the empty set.
// Resources that do not decode count as absent.
func (d *Decoder) Set(s *manifest.Set) Set { return planned{d, s} }

// planned decodes the resources of a planned set when they are looked up. Resources that do not decode count as absent.
type planned struct {
	*Decoder
	set *manifest.Set
}

// Message decodes a resource.
func (p planned) Message(t xds.Type, name string) proto.Message {
	if p.set == nil {
		return nil
	}
	return p.Decoder.Message(p.set.Types[t].Get(name))
}

// All decodes the resources of a type, in the order of their names.
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

// Between returns the view that two planned sets make, without its label and its inputs; nil is the empty set. The
// error names a resource that differs and does not decode, which is a fault of the builders.
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

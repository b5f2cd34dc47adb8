//go:build !race

package plan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/meaning"
)

// Every edit that changes the bytes of a resource yields at least one fact, and so does every change of a single field
// of a resource, also inside of a filter. An unchanged resource yields no fact.
func TestFactsAreComplete(t *testing.T) {
	edits, fields, silent := 0, 0, 0
	for i := range max(2, *histories/6) {
		d, r := newRandomRun(t, firstAsked+uint64(i), &affects).withApps(), rand.New(rand.NewPCG(uint64(i), 30))
		for step := range 15 {
			before := map[*Handle]*manifest.Set{}
			for _, h := range slices.Concat(d.handles, d.apps) {
				before[h] = h.Set()
			}
			d.step(step)
			d.drain()
			seen := map[any]bool{} // proxies of one view have equal plans, and views have resources in common
			again := func(key any) bool {
				defer func() { seen[key] = true }()
				return seen[key]
			}
			for h, set := range before {
				if again(h.planned.Load()) {
					continue
				}
				v := between(t, set, h.Set())
				meaning.Risks(v) // every risk looks at every pair
				for _, p := range v.Pairs {
					if again(p.Versions) {
						continue
					}
					edits++
					if len(factsOf(v, p)) == 0 && !proto.Equal(p.Old, p.New) { // equal: a patch removes a virtual host
						silent++
						t.Logf("seed %d, step %d: no fact about %v %s:\n%v\n%v", i, step, p.Type, p.Name, p.Old, p.New)
					}
					fields += changeField(t, r, v, p)
				}
			}
		}
	}
	if silent > 0 {
		t.Errorf("%d of %d changed resources have no fact", silent, edits)
	}
	t.Logf("%d changed resources, %d changed fields", edits, fields)
	if edits < 500 || fields < 500 {
		t.Errorf("%d changed resources and %d changed fields are few", edits, fields)
	}
}

func between(t *testing.T, before, after *manifest.Set) meaning.View {
	t.Helper()
	v, err := new(meaning.Decoder).Between(before, after)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// factsOf returns the facts about one pair.
func factsOf(v meaning.View, p meaning.Pair) []meaning.Fact {
	v.Pairs = []meaning.Pair{p}
	return meaning.Facts(v)
}

// changeField compares a resource with itself, and with a copy in which one field differs. It returns the number of
// changed fields.
func changeField(t *testing.T, r *rand.Rand, v meaning.View, p meaning.Pair) int {
	t.Helper()
	if p.New == nil {
		return 0
	}
	p.Old, p.Versions, p.Confidential = proto.Clone(p.New), [2]string{}, false
	if all := factsOf(v, p); len(all) > 0 {
		t.Errorf("%v %s differs from itself: %v", p.Type, p.Name, all)
	}
	n := -1 << 30
	changeLeaf(p.Old.ProtoReflect(), &n)
	if n += 1 << 30; n == 0 {
		return 0
	}
	at := r.IntN(n)
	p.New = proto.Clone(p.Old)
	path := changeLeaf(p.New.ProtoReflect(), &at)
	if len(factsOf(v, p)) == 0 && !strings.HasSuffix(path, ".clusters.weight.value") { // all may be of one cluster
		t.Errorf("%v %s: no fact about %s:\n%v\n%v", p.Type, p.Name, path, p.Old, p.New)
	}
	return 1
}

// changeLeaf changes the scalar at an index below a message and returns its path. A negative index is counted up
// instead, once for each scalar.
func changeLeaf(m protoreflect.Message, at *int) (path string) {
	if packed, is := m.Interface().(*anypb.Any); is {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			return ""
		}
		if path = changeLeaf(inner.ProtoReflect(), at); path != "" {
			packed.Value, _ = proto.MarshalOptions{Deterministic: true}.Marshal(inner)
		}
		return path
	}
	scalar := func(fd protoreflect.FieldDescriptor, v protoreflect.Value, set func(protoreflect.Value)) bool {
		if *at != 0 {
			*at += map[bool]int{true: 1, false: -1}[*at < 0]
			return false
		}
		set(changed(fd, v))
		return true
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		v := m.Get(fd)
		switch {
		case fd.IsMap():
			for _, key := range sortedKeys(v.Map()) {
				if fd.MapValue().Message() != nil {
					path = changeLeaf(v.Map().Get(key).Message(), at)
				} else if scalar(fd.MapValue(), v.Map().Get(key), func(to protoreflect.Value) { v.Map().Set(key, to) }) {
					path = "*"
				}
				if path != "" {
					return string(fd.Name()) + "[" + key.String() + "]." + path
				}
			}
		case fd.IsList():
			for j := range v.List().Len() {
				if fd.Message() != nil {
					path = changeLeaf(v.List().Get(j).Message(), at)
				} else if scalar(fd, v.List().Get(j), func(to protoreflect.Value) { v.List().Set(j, to) }) {
					path = "*"
				}
				if path != "" {
					return string(fd.Name()) + "." + path
				}
			}
		case fd.Message() != nil:
			if path = changeLeaf(v.Message(), at); path != "" {
				return string(fd.Name()) + "." + path
			}
		default:
			if scalar(fd, v, func(to protoreflect.Value) { m.Set(fd, to) }) {
				return string(fd.Name())
			}
		}
	}
	return ""
}

// sortedKeys returns the keys of a map, sorted by their text.
func sortedKeys(m protoreflect.Map) (keys []protoreflect.MapKey) {
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
	return keys
}

// changed returns another value of a scalar field.
func changed(fd protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(!v.Bool())
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		for i := range values.Len() {
			if n := values.Get(i).Number(); n != v.Enum() {
				return protoreflect.ValueOfEnum(n)
			}
		}
		return protoreflect.ValueOfEnum(v.Enum() + 1)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(v.String() + "x")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(append(slices.Clone(v.Bytes()), 'x'))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(v.Int()) + 1)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(v.Int() + 1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(v.Uint()) + 1)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(v.Uint() + 1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(v.Float()) + 1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(v.Float() + 1)
	}
	return v
}

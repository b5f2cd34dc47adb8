package dump

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"navarch.io/navarch/push/xds"
)

// Stream parses dumps one resource at a time: config_dumps of Envoy's admin interface or of istioctl proxy-config all,
// one after the other. At most one resource is in memory.
type Stream struct {
	in   *json.Decoder
	from *bounded
}

// MaxResource is the most bytes of a resource, or of another value, that a Stream reads.
const MaxResource = 64 << 20

// bounded is a reader with a budget of bytes, which a Stream renews at each resource.
type bounded struct {
	io.Reader
	left, most int
}

// Read implements io.Reader. It fails once the budget is spent.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a value has more than %d bytes", b.most)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// NewStream returns a stream of the dumps in r.
func NewStream(r io.Reader) *Stream {
	from := &bounded{r, MaxResource, MaxResource}
	return &Stream{json.NewDecoder(from), from}
}

// decode decodes the next value.
func (s *Stream) decode(into any) error {
	s.from.left = s.from.most
	return s.in.Decode(into)
}

// token reads the next token.
func (s *Stream) token() (json.Token, error) {
	s.from.left = s.from.most
	return s.in.Token()
}

// Visitor receives the parts of one dump, in their order. An error ends the dump, and is returned.
type Visitor struct {
	// Node receives the node of the bootstrap as JSON, before all resources.
	Node func(json.RawMessage) error
	// Section receives the type of a section that begins, even of an empty one.
	Section func(xds.Type) error
	// Resource receives a resource that the proxy got from its control plane, or a refused version without a body.
	// Message and Problem are not filled in.
	Resource func(Resource) error
}

// Next reads one dump. io.EOF: there is no further dump. Errors: the text has another form, or the bootstrap does not
// precede the resources; errors of the visitor.
func (s *Stream) Next(v Visitor) error {
	if !s.in.More() {
		if _, err := s.token(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("this is no JSON object: %w", err)
		}
		return io.EOF
	}
	found := false
	err := s.members(func(key string) error {
		if key != "configs" {
			return s.skip()
		}
		found = true
		return s.elements(func() error { return s.config(v) })
	})
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err == nil && !found {
		return errors.New(`this is no config_dump: it has no field "configs"`)
	}
	return err
}

// members calls each for every member of the object that comes next; each has to read the value.
func (s *Stream) members(each func(key string) error) error {
	if err := s.open('{'); err != nil {
		return err
	}
	for s.in.More() {
		key, err := s.token()
		if err != nil {
			return err
		}
		if err := each(key.(string)); err != nil {
			return err
		}
	}
	_, err := s.token()
	return err
}

// elements calls each for every element of the list that comes next; each has to read it. null is an empty list.
func (s *Stream) elements(each func() error) error {
	at, err := s.token()
	if err != nil || at == nil {
		return err
	}
	if at != json.Delim('[') {
		return s.notDump(at, '[')
	}
	for s.in.More() {
		if err := each(); err != nil {
			return err
		}
	}
	_, err = s.token()
	return err
}

// open reads the beginning of an object or a list.
func (s *Stream) open(want json.Delim) error {
	at, err := s.token()
	if err != nil {
		return fmt.Errorf("this is no JSON: %w", err)
	}
	if at != want {
		return s.notDump(at, want)
	}
	return nil
}

func (s *Stream) notDump(at json.Token, want json.Delim) error {
	return fmt.Errorf("this is no config_dump: %.40q at byte %d, want %v", fmt.Sprint(at), s.in.InputOffset(), want)
}

// skip reads a value without its content.
func (s *Stream) skip() error {
	depth := 0
	for {
		at, err := s.token()
		if err != nil {
			return err
		}
		switch at {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// config reads one section. Its type has to be its first member, as it is in every writer's form of an Any.
func (s *Stream) config(v Visitor) error {
	section := ""
	return s.members(func(key string) error {
		if section == "" {
			if key != "@type" {
				return fmt.Errorf("this is no config_dump: a section begins with %q, want %q", key, "@type")
			}
			if err := s.decode(&section); err != nil {
				return err
			}
			section = section[strings.LastIndexByte(section, '/')+1:]
			if t := typeOf(section); t != xds.Unknown {
				return v.Section(t)
			}
			return nil
		}
		return s.member(section, key, v)
	})
}

// member reads one member of a section.
func (s *Stream) member(section, key string, v Visitor) error {
	if section == "envoy.admin.v3.BootstrapConfigDump" && key == "bootstrap" {
		return s.members(func(key string) error {
			if key != "node" {
				return s.skip()
			}
			var node json.RawMessage
			if err := s.decode(&node); err != nil {
				return err
			}
			return v.Node(node)
		})
	}
	t := typeOf(section)
	if t == xds.Unknown {
		return s.skip()
	}
	i := slices.IndexFunc(sections[t].lists, func(l list) bool { return l.field == key || camel(l.field) == key })
	if i < 0 || sections[t].lists[i].where == "static" {
		return s.skip()
	}
	return s.elements(func() error {
		var e object
		if err := s.decode(&e); err != nil {
			return err
		}
		one := Dump{raw: true}
		one.add(t, sections[t].lists[i].where, e)
		for _, r := range one.Resources[t] {
			if err := v.Resource(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// typeOf returns the type of a section by its message; xds.Unknown for other sections.
func typeOf(message string) xds.Type {
	i := slices.IndexFunc(sections[:], func(s section) bool { return s.message == message })
	if i < 0 {
		return xds.Unknown
	}
	return xds.Type(i)
}

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

// Stream parses a sequence of config_dumps from Envoy's admin interface or from istioctl proxy-config all. It keeps
// only one entry of a dump in memory. An entry is one resource, or all states of one listener. A Stream is not safe for
// concurrent use.
type Stream struct {
	in   *json.Decoder
	from *bounded
}

// MaxResource bounds the bytes that a Stream reads for one entry of a dump or another JSON value: 64 MiB. If the value
// does not end within these bytes, Next fails.
const MaxResource = 64 << 20

// bounded is a reader with a budget of bytes. A Stream sets the budget (the field left) to its maximum (the field most)
// before each value.
type bounded struct {
	io.Reader
	left, most int
}

// Read implements io.Reader. It reads up to the rest of the budget, and fails if the budget is exhausted.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a value has more than %d bytes", b.most)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// NewStream returns a stream of the dumps in r. NewStream does not read r. Next reads r, and may read beyond the end of
// a dump.
func NewStream(r io.Reader) *Stream {
	from := &bounded{r, MaxResource, MaxResource}
	return &Stream{json.NewDecoder(from), from}
}

// decode decodes the next value, after it resets the budget.
func (s *Stream) decode(into any) error {
	s.from.left = s.from.most
	return s.in.Decode(into)
}

// token reads the next token, after it resets the budget.
func (s *Stream) token() (json.Token, error) {
	s.from.left = s.from.most
	return s.in.Token()
}

// Visitor receives the parts of one dump, in the order of the dump. Next stops at the first error of a function, and
// returns this error, which must not be io.EOF. No function may be nil. The functions may keep their arguments.
type Visitor struct {
	// Node receives the node of each bootstrap in the dump, as JSON. Envoy writes the bootstrap before all resources,
	// but Next does not verify this order.
	Node func(json.RawMessage) error
	// Section receives the type of each section of resources at the section's beginning, even if the section is empty.
	// Sections of unknown types are skipped.
	Section func(xds.Type) error
	// Resource receives each resource that the proxy got from its control plane. Static resources are skipped.
	// Resource.Raw is nil if the proxy has no accepted version. Resource.Message and Resource.Problem are not set.
	Resource func(Resource) error
}

// Next reads one dump, and calls the visitor for its parts. It returns io.EOF if there is no further dump, and an error
// that wraps io.ErrUnexpectedEOF if the text ends within a dump. Other errors: the text has another form, a value
// exceeds MaxResource, the reader failed, or a function of the visitor failed. After an error, Next must not be called
// again.
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

// members reads the next value, which must be an object. For every member it calls the function visit with the member's
// name. The function must read the member's value.
func (s *Stream) members(visit func(key string) error) error {
	if err := s.open('{'); err != nil {
		return err
	}
	for s.in.More() {
		key, err := s.token()
		if err != nil {
			return err
		}
		if err := visit(key.(string)); err != nil {
			return err
		}
	}
	_, err := s.token()
	return err
}

// elements reads the next value, which must be a list or null. For every element it calls the function visit, which
// must read the element.
func (s *Stream) elements(visit func() error) error {
	at, err := s.token()
	if err != nil || at == nil {
		return err
	}
	if at != json.Delim('[') {
		return s.notDump(at, '[')
	}
	for s.in.More() {
		if err := visit(); err != nil {
			return err
		}
	}
	_, err = s.token()
	return err
}

// open reads the delimiter that begins an object or a list. Any other token is an error.
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

// skip reads a value and discards it.
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

// config reads one section. Its first member has to be "@type", which writers of Any put first.
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

// member reads one member of a section. The parameter section is the name of the section's message.
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

// typeOf returns the type of the resources in a section, given the name of the section's message. It returns
// xds.Unknown for an unknown name.
func typeOf(message string) xds.Type {
	i := slices.IndexFunc(sections[:], func(s section) bool { return s.message == message })
	if i < 0 {
		return xds.Unknown
	}
	return xds.Type(i)
}

package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navarch.io/navarch/push/xds"
)

// pieceSize is the size of the pieces of a page, in bytes.
const pieceSize = 64 << 10

// text is the JSON of a page, in pieces. A page may be as large as all resources of a proxy. A single buffer would be
// copied whenever it grows, and an encoder of the whole page would need several times the page's size.
type text struct{ pieces [][]byte }

// Write implements io.Writer.
func (t *text) Write(b []byte) (n int, err error) {
	for n = len(b); len(b) > 0; {
		last := len(t.pieces) - 1
		if last < 0 || len(t.pieces[last]) == cap(t.pieces[last]) {
			t.pieces = append(t.pieces, make([]byte, 0, pieceSize))
			last++
		}
		piece := t.pieces[last]
		fits := min(len(b), cap(piece)-len(piece))
		t.pieces[last], b = append(piece, b[:fits]...), b[fits:]
	}
	return n, nil
}

// writeTo writes the page, and frees each piece when it is written.
func (t *text) writeTo(w io.Writer) error {
	for i, piece := range t.pieces {
		t.pieces[i] = nil
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// page encodes an answer as JSON with an indent of two spaces. It encodes the elements of a list one after the other.
func (t *text) page(answer any) error {
	if dump, is := answer.(dumped); is {
		return dump.print(t)
	}
	list := reflect.ValueOf(answer)
	if list.Kind() != reflect.Slice || list.Type() == reflect.TypeFor[json.RawMessage]() {
		enc := json.NewEncoder(t)
		enc.SetIndent("", "  ")
		return enc.Encode(answer)
	}
	open := "["
	for i := range list.Len() {
		raw, err := json.MarshalIndent(list.Index(i).Interface(), "  ", "  ")
		if err != nil {
			return err
		}
		fmt.Fprint(t, open, "\n  ")
		_, _ = t.Write(raw) // it never returns an error
		open = ","
	}
	if open == "[" {
		fmt.Fprint(t, "[]\n")
	} else {
		fmt.Fprint(t, "\n]\n")
	}
	return nil
}

// dumped is the page of one proxy's resources, an envoy.admin.v3.ConfigDump.
type dumped struct {
	stream Stream
	wanted []xds.Type // types to include; empty: all types
}

// print writes the page as JSON. It decodes and encodes one resource after the other, because all messages together
// would need several times the memory of the encoded resources.
func (d dumped) print(w io.Writer) error {
	fmt.Fprint(w, "{\n  \"configs\": [")
	open, messages := "", messagePrinter{}
	err := d.stream.sections(d.wanted, func(section proto.Message) error {
		m := section.ProtoReflect()
		fmt.Fprintf(w, "%s\n    {\n      \"@type\": %q", open, "type.googleapis.com/"+m.Descriptor().FullName())
		open = ","
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			if err := messages.print(w, fields.Get(i), m); err != nil {
				return err
			}
		}
		_, err := fmt.Fprint(w, "\n    }")
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(w, "\n  ]\n}\n")
	return err
}

// messagePrinter encodes messages and reuses its buffers. New buffers for each message would be garbage, whose
// collection delays pushes.
type messagePrinter struct {
	raw    []byte
	pretty bytes.Buffer
}

// print encodes one field of a section. The field is a message or a list of messages. For an empty field, and for a
// field of another type, print writes nothing.
func (p *messagePrinter) print(w io.Writer, field protoreflect.FieldDescriptor, section protoreflect.Message) error {
	if !section.Has(field) || field.Message() == nil {
		return nil
	}
	open := fmt.Sprintf(",\n      %q: ", field.TextName())
	if !field.IsList() {
		return p.message(w, open, "      ", section.Get(field).Message())
	}
	open += "[\n        "
	all := section.Get(field).List()
	for i := range all.Len() {
		if err := p.message(w, open, "        ", all.Get(i).Message()); err != nil {
			return err
		}
		open = ",\n        "
	}
	_, err := fmt.Fprint(w, "\n      ]")
	return err
}

// message writes the prefix, and then one message. All lines of the message except the first begin with the text
// indent.
func (p *messagePrinter) message(w io.Writer, prefix, indent string, m protoreflect.Message) (err error) {
	p.raw, err = protojson.MarshalOptions{UseProtoNames: true}.MarshalAppend(p.raw[:0], m.Interface())
	if err != nil {
		return err
	}
	p.pretty.Reset() // json.Indent is needed because protojson varies its white space
	p.pretty.WriteString(prefix)
	if err := json.Indent(&p.pretty, p.raw, indent, "  "); err != nil {
		return err
	}
	_, err = w.Write(p.pretty.Bytes())
	return err
}

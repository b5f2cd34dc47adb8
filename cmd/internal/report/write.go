package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/cut"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// encoding has the options for the encoding of all protobuf messages.
var encoding = proto.MarshalOptions{Deterministic: true}

// Writer writes entries of an archive as one gzip member, in memory. It is not safe for concurrent use.
type Writer struct {
	out  bytes.Buffer
	gz   *gzip.Writer
	tar  *tar.Writer
	when time.Time
	in   string // folder of the entries, with a slash at the end; empty: the root
}

// NewWriter returns a writer of entries at the root of the archive. The argument is the modification time of the
// entries. Add truncates it to seconds.
func NewWriter(when time.Time) *Writer {
	w := &Writer{when: when}
	w.gz = gzip.NewWriter(&w.out)
	w.tar = tar.NewWriter(w.gz)
	return w
}

// NewPart returns a writer of entries in the folder of one process. The folder has the name of the process, but without
// leading dots, and with _ for characters that are unusual in file names. The argument when is the modification time of
// the entries, as in NewWriter.
func NewPart(process string, when time.Time) *Writer {
	w := NewWriter(when)
	w.in = processes + fileName(process) + "/"
	return w
}

// fileName returns a name without its leading dots. All characters except ASCII letters, ASCII digits and -_.~ become
// _.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.~", r) {
			return r
		}
		return '_'
	}, strings.TrimLeft(name, "."))
}

// Add adds an entry with unchanged content, and does not retain content. name is relative to the Writer's folder. The
// error names the entry. It reports a name that tar cannot encode, or an earlier call of Member.
func (w *Writer) Add(name string, content []byte) error {
	err := w.tar.WriteHeader(&tar.Header{Name: w.in + name, Mode: 0o600, Size: int64(len(content)), ModTime: w.when.Truncate(time.Second)})
	if err == nil {
		_, err = w.tar.Write(content)
	}
	if err != nil {
		return fmt.Errorf("entry %s: %w", name, err)
	}
	return nil
}

// Text adds a text with credentials cut (replaced by cut.Text). The argument is not changed. Errors are those of Add.
func (w *Writer) Text(name string, text []byte) error { return w.Add(name, cut.Text(text)) }

// JSON adds a value as indented JSON, with credentials cut (cut.JSON). The error names the entry. It reports that v
// does not encode as JSON, or is an error of Add.
func (w *Writer) JSON(name string, v any) error {
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("entry %s: %w", name, err)
	}
	return w.Add(name, append(cut.JSON(raw), '\n'))
}

// Facts adds process.json. Errors are those of JSON.
func (w *Writer) Facts(f *Facts) error { return w.JSON(factsName, f) }

// Proxies adds the connected proxies, and the sets of resources to which Proxy.Set refers. It cuts credentials in the
// resources, but not in the proxies. StatesOf cuts credentials in proxies. Errors: a proxy does not encode as JSON, a
// resource cannot be decoded or encoded, or an error of Add.
func (w *Writer) Proxies(all []Proxy, sets *Sets) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for i := range all {
		if err := encoder.Encode(&all[i]); err != nil {
			return fmt.Errorf("proxy %s: %w", all[i].Node.ID, err)
		}
	}
	held, err := sets.encode()
	if err != nil {
		return err
	}
	if err := w.Add(proxiesName, lines.Bytes()); err != nil {
		return err
	}
	return w.Add(heldName, held)
}

// Records adds the records of a snapshot, with private keys and credentials cut. The snapshot is not changed. The error
// reports a record that does not encode, or is an error of Add.
func (w *Writer) Records(s *mirror.Snapshot) error {
	var raw bytes.Buffer
	if err := mirror.Write(&raw, s, w.when, publicRecord); err != nil {
		return fmt.Errorf("records: %w", err)
	}
	return w.Add(recordsName, raw.Bytes())
}

// NoKey replaces the private key in a Secret's record, because archives never have private keys.
const NoKey = "not in a report"

// publicRecord returns a record without private keys and credentials. r is not changed. A Secret is always copied. For
// other records, the result is r itself if nothing is cut.
func publicRecord(r model.Record) (model.Record, error) {
	key := r.Meta().Key
	if s, is := r.(*model.Secret); is {
		body := proto.CloneOf(s.Spec)
		if body.Mac = nil; len(body.Key) > 0 {
			body.Key = []byte(NoKey)
		}
		return model.New(key, r.Meta().Created, body)
	}
	body := r.Body()
	raw, err := encoding.Marshal(body)
	if err != nil {
		return nil, err
	}
	if _, mesh := r.(*model.Mesh); !mesh && !cut.Suspects(raw) { // Suspects may miss credentials of extension providers
		return r, nil
	}
	if p, is := r.(*model.Policy); is {
		return publicPolicy(p)
	}
	if body = proto.Clone(body); !cut.Message(body) {
		return r, nil
	}
	return model.New(key, r.Meta().Created, body)
}

// publicPolicy returns a policy's record with credentials cut in its encoded Istio message. If nothing is cut, the
// result is p itself.
func publicPolicy(p *model.Policy) (model.Record, error) {
	var istio proto.Message
	switch {
	case model.Authorization(p) != nil:
		istio = proto.Clone(model.Authorization(p))
	case model.Authentication(p) != nil:
		istio = proto.Clone(model.Authentication(p))
	}
	if istio == nil || !cut.Message(istio) {
		return p, nil
	}
	raw, err := encoding.Marshal(istio)
	if err != nil {
		return nil, err
	}
	body := proto.CloneOf(p.Spec)
	body.Istio = raw
	return model.New(p.Key, p.Created, body)
}

// Index adds index.json. It sets the field Schema to the constant Schema. Errors are those of JSON.
func (w *Writer) Index(i Index) error {
	i.Schema = Schema
	return w.JSON(indexName, i)
}

// Envoys adds the dumps of Envoys, and the list as envoys.json. The keys of the map are entry names (EnvoyFile),
// relative to the folder of the Writer. Credentials are cut (cut.JSON). Errors are those of Add and JSON.
func (w *Writer) Envoys(list []Envoy, dumps map[string][]byte) error {
	for name, dump := range dumps {
		if err := w.Add(name, cut.JSON(dump)); err != nil {
			return err
		}
	}
	return w.JSON(envoysName, list)
}

// EnvoyFile returns the name of the entry for a proxy's dump, with the folder and the ending .json. In the proxy's ID,
// all characters except ASCII letters, ASCII digits and -_.~ become _. Leading dots are removed.
func EnvoyFile(proxy string) string { return envoys + fileName(proxy) + ".json" }

// Member returns the entries as a gzip member, and ends the writer: no entry may be added afterwards. An archive is the
// concatenation of members. The argument must be true for the last member, which ends the tar archive. The error is an
// error of the tar or gzip encoder, for example for an incomplete entry.
func (w *Writer) Member(last bool) ([]byte, error) {
	end := w.tar.Flush
	if last {
		end = w.tar.Close
	}
	if err := end(); err != nil {
		return nil, err
	}
	if err := w.gz.Close(); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

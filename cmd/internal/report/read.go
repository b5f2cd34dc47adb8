package report

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"navarch.io/navarch/store/mirror"
)

// Limits bound the archives that Read accepts. A zero field permits nothing of its kind. The entries held.bin have the
// xDS resources of proxies, in lists and sets.
type Limits struct {
	Compressed   int64 // bytes of the archive
	Decompressed int64 // bytes of all entries with their headers
	Entries      int   // all entries, also unknown ones
	Proxies      int   // of all processes
	Processes    int
	Texts        int   // labels and entries of metadata, of all nodes
	Refusals     int   // refused and withheld versions of all proxies
	Page         int64 // bytes of one entry that is counted in Pages or Facts
	Pages        int64 // bytes of all entries in Process.Pages
	Facts        int64 // bytes of all entries index.json, process.json and envoys.json
	Held         int64 // bytes of all entries held.bin
	Resources    int   // in all entries held.bin; a resource takes about 250 bytes of memory besides its body
	Lists        int   // of all held.bin
	Sets         int   // of all held.bin
}

// Usual has the limits for archives of fleets of up to about 100,000 proxies.
var Usual = Limits{Compressed: 256 << 20, Decompressed: 1 << 30, Entries: 20_000, Proxies: 200_000, Processes: 512,
	Texts: 8 << 20, Refusals: 1 << 18, Page: 16 << 20,
	Pages: 256 << 20, Facts: 32 << 20, Held: 512 << 20, Resources: 1 << 20, Lists: 1 << 18, Sets: 1 << 18}

// Report is a decoded archive. Its owner may change it.
type Report struct {
	Index     Index
	Processes []*Process // in the order of their first entries
	// Snapshot contains the records of the first records.bin; nil: the archive has no records.bin.
	Snapshot *mirror.Snapshot
	Envoys   []Envoy // content of envoys.json; nil: the archive does not have this entry
}

// Process is the part of an archive that one process wrote.
type Process struct {
	Facts
	Proxies []Proxy
	Held    Held
	Pages   map[string]json.RawMessage // the other *.json entries, by name without the ending; not nil
}

// bounded is a reader of at most left bytes. Each further Read fails, even at the end of the input.
type bounded struct {
	r    io.Reader
	left int64
	what string
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the archive exceeds the limit of %s", b.what)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// reader contains the state of one Read.
type reader struct {
	limits Limits // Pages, Facts, Held, Resources, Lists and Sets are what remains of these limits
	out    *Report
	by     map[string]*Process
	index  bool

	proxies, texts, refusals int
}

// Read decodes an archive up to its end. The archive may come from an untrusted source, so the argument l limits its
// size. Unknown entries are skipped. Several entries may have the same name. The proxies of all entries proxies.jsonl
// of a process are joined. Read uses the first records.bin of the archive. Of other entries with the same name, it uses
// the last one.
//
// Read fails if r fails or is not gzip or tar, if a limit is exceeded, or if an entry is damaged or not a regular file.
// It also fails if Index.Schema differs from the constant Schema, or if index.json or the process.json of a process is
// missing. Errors about an entry name the entry. With an error the Report is nil.
func Read(r io.Reader, l Limits) (*Report, error) {
	compressed := &bounded{r, l.Compressed, fmt.Sprintf("%d bytes compressed", l.Compressed)}
	gz, err := gzip.NewReader(bufio.NewReaderSize(compressed, 1<<16))
	if err != nil {
		return nil, fmt.Errorf("not an archive of navarchctl bug-report or snapshot save: %w", err)
	}
	entries := tar.NewReader(&bounded{gz, l.Decompressed, fmt.Sprintf("%d bytes", l.Decompressed)})
	in := &reader{limits: l, out: &Report{}, by: map[string]*Process{}}
	for n := 0; ; n++ {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not an archive of navarchctl bug-report or snapshot save: %w", err)
		}
		if n == l.Entries {
			return nil, fmt.Errorf("the archive has more than %d entries", l.Entries)
		}
		if header.Typeflag != tar.TypeReg || header.Size < 0 || header.Size > l.Decompressed {
			return nil, fmt.Errorf("entry %.80q: not a file of a possible size", header.Name)
		}
		if err := in.entry(header.Name, header.Size, entries); err != nil {
			return nil, fmt.Errorf("entry %.80q: %w", header.Name, err)
		}
	}
	return in.finish()
}

// finish returns the Report. It fails if the archive has no index, or if a process has no process.json with a name.
func (in *reader) finish() (*Report, error) {
	if !in.index {
		return nil, fmt.Errorf("the archive has no %s: it was cut off, or is of another program", indexName)
	}
	for folder, p := range in.by {
		if p.Name == "" {
			return nil, fmt.Errorf("process %.80q has no %s", folder, factsName)
		}
	}
	return in.out, nil
}

// entry decodes an entry. It skips entries with unknown names.
func (in *reader) entry(name string, size int64, r io.Reader) error {
	if name == indexName {
		in.index = true
		if err := decode(r, size, in.limits.Page, &in.limits.Facts, &in.out.Index); err != nil {
			return err
		}
		if in.out.Index.Schema != Schema {
			return fmt.Errorf("schema %.60q; this build reads %s", in.out.Index.Schema, Schema)
		}
		return nil
	}
	if name == envoysName {
		return decode(r, size, in.limits.Page, &in.limits.Facts, &in.out.Envoys)
	}
	rest, is := strings.CutPrefix(name, processes)
	folder, file, inside := strings.Cut(rest, "/")
	if !is || !inside || folder == "" {
		return nil
	}
	p := in.by[folder]
	if p == nil {
		if len(in.by) == in.limits.Processes {
			return fmt.Errorf("more than %d processes", in.limits.Processes)
		}
		p = &Process{Pages: map[string]json.RawMessage{}}
		in.by[folder], in.out.Processes = p, append(in.out.Processes, p)
	}
	return in.part(p, file, size, r)
}

// part decodes an entry of the process p. The argument file is the name of the entry within the process's folder.
func (in *reader) part(p *Process, file string, size int64, r io.Reader) error {
	switch {
	case file == factsName:
		return decode(r, size, in.limits.Page, &in.limits.Facts, &p.Facts)
	case file == recordsName && in.out.Snapshot == nil:
		s, err := mirror.Read(r)
		in.out.Snapshot = s
		return err
	case file == proxiesName:
		return in.readProxies(p, r)
	case file == heldName:
		if err := take(&in.limits.Held, size); err != nil {
			return err
		}
		held, err := decodeHeld(r, size, &in.limits)
		p.Held = held
		return err
	case strings.HasSuffix(file, ".json"):
		var page json.RawMessage
		if err := decode(r, size, in.limits.Page, &in.limits.Pages, &page); err != nil {
			return err
		}
		p.Pages[strings.TrimSuffix(file, ".json")] = page
	}
	return nil
}

// Bounds of a line of proxies.jsonl.
const (
	maxLine   = 1 << 20 // bytes
	mostTypes = 64      // a later version may have more types than this one
)

// readProxies decodes the lines of proxies.jsonl.
func (in *reader) readProxies(p *Process, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var one Proxy
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return fmt.Errorf("proxy %d: %w", len(p.Proxies)+1, err)
		}
		in.proxies++
		in.texts += len(one.Node.Labels) + len(one.Node.Metadata)
		if len(one.Types) > mostTypes {
			return fmt.Errorf("proxy %d: %d types, at most %d", len(p.Proxies)+1, len(one.Types), mostTypes)
		}
		for _, s := range one.Types {
			in.refusals += len(s.Refused) + len(s.Withheld)
		}
		if l := in.limits; in.proxies > l.Proxies || in.texts > l.Texts || in.refusals > l.Refusals {
			return fmt.Errorf("more than %d proxies, %d labels and metadata, or %d refusals", l.Proxies, l.Texts, l.Refusals)
		}
		p.Proxies = append(p.Proxies, one)
	}
	return lines.Err()
}

// content reads a whole entry. For an entry of 1 MiB or more, memory grows with the bytes that are read, not with the
// size in the entry's header.
func content(r io.Reader, size int64) ([]byte, error) {
	var b bytes.Buffer
	if size < 1<<20 {
		b.Grow(int(size))
	}
	_, err := b.ReadFrom(r)
	return b.Bytes(), err
}

// take subtracts the size of an entry from the bytes that are left for its kind. It fails if too few bytes are left.
func take(left *int64, size int64) error {
	if size > *left {
		return fmt.Errorf("%d bytes, at most %d are left for entries of this kind", size, *left)
	}
	*left -= size
	return nil
}

// decode decodes a JSON entry. It fails if the size of the entry exceeds the argument limit. decode replaces the value
// of an earlier entry, and subtracts the size from the bytes that are left for entries of this kind.
func decode[T any](r io.Reader, size, limit int64, left *int64, into *T) error {
	if size > limit {
		return fmt.Errorf("%d bytes, at most %d", size, limit)
	}
	if err := take(left, size); err != nil {
		return err
	}
	raw, err := content(r, size)
	if err != nil {
		return err
	}
	var value T
	err = json.Unmarshal(raw, &value)
	*into = value
	return err
}

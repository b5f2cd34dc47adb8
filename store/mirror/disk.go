package mirror

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/model"
)

// Disk configures the snapshot file. A replica starts from this file if etcd does not answer, or if etcd has no valid
// state that is at least as new. Records have the same form as in etcd, so encrypted private keys stay encrypted.
type Disk struct {
	Path   string        // path of the file; its folder must exist
	Mesh   string        // name of the mesh; files of another mesh are not used
	MaxAge time.Duration // a file that is older at a start is not used; 0: 24 h
	Every  time.Duration // minimum interval of writes; 0: 30 s
	Room   func() string // returns the reason not to write the file now, or ""; nil: the file is always written
}

const (
	diskName    = "navarch snapshot "
	diskFormat  = 1
	diskMagic   = diskName + "1\n"
	maxDiskPart = 16 << 20 // bytes of one record (etcd accepts 1.5 MiB) or of the head
	maxDisk     = 8 << 30  // bytes of the file; etcd supports no larger database (etcd.io: System limits, Storage size limit)
)

// diskHead is the first line after the magic, as JSON.
type diskHead struct {
	Mesh     string `json:"mesh"`
	Cluster  uint64 `json:"cluster"`
	Revision int64  `json:"revision"`
	// Place is the kv.Place (position in the sequence of heads) of the newest head that the replica read. After a
	// restart, the replica rejects an etcd that was restored from a backup and has an older head.
	Place   string    `json:"place,omitempty"`
	Saved   time.Time `json:"saved"` // time of the write, when the snapshot was etcd's newest state or had been shortly before
	Records int       `json:"records"`
	// Unknown lists the records of kinds that the writing build did not know. Some namespaces are not served because of
	// these records. They are not served after a restart either.
	Unknown []model.Unknown `json:"unknown,omitempty"`
}

// place returns the parsed Place of the head, or the zero Place if it is absent or invalid.
func (h diskHead) place() kv.Place {
	p, err := kv.ParsePlace(h.Place)
	if err != nil {
		return kv.Place{}
	}
	return p
}

// writeSnapshot encodes a snapshot: magic, head, path and value of each record with their lengths, and the SHA-256 of
// all these bytes.
func writeSnapshot(w io.Writer, head diskHead, s *Snapshot) error {
	return encodeSnapshot(w, head, s, func(r model.Record) (model.Record, error) { return r, nil })
}

// encodeSnapshot does the same as writeSnapshot, but passes each record to the function convert and writes the result.
func encodeSnapshot(w io.Writer, head diskHead, s *Snapshot, convert func(model.Record) (model.Record, error)) error {
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<20)
	head.Records, head.Unknown = 0, s.unknown
	for _, n := range s.counts {
		head.Records += n
	}
	if s.place.Known() {
		head.Place = s.place.String()
	}
	line, err := json.Marshal(head)
	if err != nil {
		return err
	}
	out.WriteString(diskMagic)
	out.Write(append(line, '\n'))
	for _, kind := range model.Kinds() {
		for r := range s.All(kind) {
			written, err := convert(r)
			if err != nil {
				return fmt.Errorf("%v: %w", r.Meta().Key, err)
			}
			raw, err := model.Encode(written)
			if err != nil {
				return fmt.Errorf("%v: %w", r.Meta().Key, err)
			}
			writePart(out, []byte(r.Meta().Key.Path()))
			writePart(out, raw)
		}
	}
	if err := out.Flush(); err != nil { // returns the errors of earlier writes too
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// writePart writes the length of a part, then the part.
func writePart(w *bufio.Writer, part []byte) {
	w.Write(binary.AppendUvarint(nil, uint64(len(part))))
	w.Write(part)
}

// readSnapshot decodes the format of writeSnapshot. A file with any damage, or with a record that this build cannot
// decode, is refused as a whole.
func readSnapshot(r io.Reader) (diskHead, *Snapshot, error) {
	in := &summed{r: bufio.NewReaderSize(r, 1<<20), sum: sha256.New()}
	head, err := in.head()
	if err != nil {
		return head, nil, err
	}
	if head.Records < 0 || head.Records > mostRecords {
		return head, nil, fmt.Errorf("%d records", head.Records)
	}
	var puts []model.Record
	for i := range head.Records {
		record, err := in.record()
		if err != nil {
			return head, nil, fmt.Errorf("record %d of %d: %w", i+1, head.Records, err)
		}
		puts = append(puts, record)
	}
	want := in.sum.Sum(nil)
	got, err := io.ReadAll(io.LimitReader(in.r, sha256.Size+1))
	if err != nil || !bytes.Equal(got, want) {
		return head, nil, errors.New("its checksum does not match: the file is damaged")
	}
	s := Empty().Apply(head.Revision, puts, nil).New
	s.unknown, s.place = head.Unknown, head.place()
	return head, s, nil
}

// summed reads from r and hashes the bytes that it reads.
type summed struct {
	r   *bufio.Reader
	sum hash.Hash
}

// Read implements io.Reader, and adds the bytes to the checksum.
func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

// ReadByte implements io.ByteReader, and adds the byte to the checksum.
func (s *summed) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		s.sum.Write([]byte{b})
	}
	return b, err
}

// line reads a line of at most about maxDiskPart bytes. The head is long if it lists many records of unknown kinds.
func (s *summed) line() ([]byte, error) {
	var line []byte
	for {
		some, err := s.r.ReadSlice('\n')
		s.sum.Write(some)
		if line = append(line, some...); !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxDiskPart {
			return line, err
		}
	}
}

// head reads the magic and the head of the file.
func (s *summed) head() (head diskHead, err error) {
	magic := make([]byte, len(diskMagic))
	if _, err := io.ReadFull(s, magic); err != nil {
		return head, errors.New("this is no snapshot that this version reads")
	}
	if format, is := strings.CutPrefix(string(magic), diskName); string(magic) != diskMagic {
		if n, err := strconv.Atoi(strings.TrimSpace(format)); is && err == nil && n > diskFormat {
			return head, fmt.Errorf("the snapshot %w: format %d, this build reads %d", model.ErrNewer, n, diskFormat)
		}
		return head, errors.New("this is no snapshot that this version reads")
	}
	line, err := s.line()
	if err == nil {
		err = json.Unmarshal(line, &head)
	}
	if err != nil {
		return head, fmt.Errorf("head: %w", err)
	}
	return head, nil
}

func (s *summed) record() (model.Record, error) {
	path, err := s.part()
	if err != nil {
		return nil, err
	}
	raw, err := s.part()
	if err != nil {
		return nil, err
	}
	return kv.Value{Path: string(path), Raw: raw}.Record()
}

// part reads one part. It allocates memory only for bytes that exist, even if a damaged length claims more.
func (s *summed) part() ([]byte, error) {
	n, err := binary.ReadUvarint(s)
	if err != nil {
		return nil, err
	}
	if n > maxDiskPart {
		return nil, fmt.Errorf("a length of %d bytes", n)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, s, int64(n)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// restore publishes the snapshot on disk if nothing was published yet, and reports whether it did. It tries the file
// only once. The parameter cause is the message to log, which states why etcd is not used.
func (f *follower) restore(now time.Time, cause string) bool {
	disk := f.cfg.Disk
	if disk == nil || f.fold.published || f.restored {
		return false
	}
	f.restored = true // the file is tried only once, and its errors are logged once
	head, snapshot, err := disk.load(now)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			f.cfg.Logger.Error("the snapshot on disk is not used", "path", disk.Path, "error", err)
		}
		if snapshot == nil && f.place() == disk.remembers() { // the place in a damaged file is not trusted either
			f.fold.base.place = kv.Place{}
			f.setStatus(func(s *Status) { s.Place = kv.Place{} })
		}
		return false
	}
	f.fold.base, f.fold.published = snapshot, true
	for _, u := range snapshot.unknown {
		f.fold.unknown[u.Path] = u
	}
	f.seen = kv.Position{Cluster: head.Cluster, Revision: head.Revision}
	f.cfg.Logger.Warn(cause, "path", disk.Path,
		"revision", head.Revision, "records", head.Records, "age", now.Sub(head.Saved).Round(time.Second))
	f.publish(Diff(Empty(), snapshot))
	f.setStatus(func(s *Status) {
		s.Revision, s.Seen, s.Place, s.Restored, s.Unknown = head.Revision, f.seen, f.place(), head.Saved, head.Unknown
	})
	return true
}

// remembers returns the place of the stored snapshot, of any age. It reads only the head of the file. The result is the
// zero Place if there is no file to read, if the file is of another mesh, or if it names no valid place.
func (d *Disk) remembers() kv.Place {
	if d == nil {
		return kv.Place{}
	}
	file, err := durable.Open(d.Path, maxDisk)
	if err != nil {
		return kv.Place{}
	}
	defer file.Close()
	in := &summed{r: bufio.NewReaderSize(file, 1<<20), sum: sha256.New()}
	head, err := in.head()
	if err != nil || head.Mesh != d.Mesh {
		return kv.Place{}
	}
	return head.place()
}

// maxSkew bounds how far a snapshot's time may be ahead of the clock, because clocks may be corrected.
const maxSkew = 10 * time.Minute

// load reads the file. It returns an error if the file is missing, damaged, too old, from the future, of another mesh
// or without a revision, or if this build cannot decode it. The snapshot is nil only if the file could not be opened or
// decoded.
func (d *Disk) load(now time.Time) (diskHead, *Snapshot, error) {
	file, err := durable.Open(d.Path, maxDisk)
	if err != nil {
		return diskHead{}, nil, err
	}
	defer file.Close()
	head, snapshot, err := readSnapshot(file)
	switch {
	case err != nil:
	case head.Mesh != d.Mesh:
		err = fmt.Errorf("it is of mesh %q", head.Mesh)
	case head.Revision <= 0:
		err = fmt.Errorf("it is of revision %d", head.Revision)
	case head.Saved.Sub(now) > maxSkew:
		err = fmt.Errorf("it was saved %v in the future: this machine's clock is behind now, or was ahead then, so the age is unknown",
			head.Saved.Sub(now).Round(time.Second))
	case now.Sub(head.Saved) > d.MaxAge:
		err = fmt.Errorf("it is %v old, at most %v are allowed", now.Sub(head.Saved).Round(time.Second), d.MaxAge)
	}
	return head, snapshot, err
}

// keep writes the newest snapshot to disk until ctx ends. It writes after changes, at most once per disk.Every, and a
// last time at the end if the snapshot has changed. While etcd answers, an unchanged snapshot is written again every
// MaxAge/24, because the time in the file states when the snapshot was last known to be etcd's newest. A snapshot that
// was read before etcd went away, or before etcd was restored, is still written once.
func (m *Mirror) keep(ctx context.Context) {
	disk := m.cfg.Disk
	var written *Snapshot
	save := func(again bool) {
		s := m.Current()
		if s == written && !(again && m.fresh()) || !m.read() || disk.Room != nil && disk.Room() != "" {
			return
		}
		if err := disk.save(s, m.Status().Seen.Cluster, time.Now()); err != nil {
			m.cfg.Logger.Error("the snapshot was not written to disk", slog.String("path", disk.Path), slog.Any("error", err))
			return
		}
		written = s
	}
	for {
		m.mu.Lock()
		moved := m.moved
		m.mu.Unlock()
		again := false
		if s := m.Current(); s == nil || s == written || !m.fresh() {
			wait := disk.Every // a snapshot is published before the status says that it is etcd's
			if s == written {
				wait = disk.MaxAge / 24
			}
			select {
			case <-moved:
			case <-time.After(wait):
				again = s == written
			case <-ctx.Done():
			}
		}
		save(again)
		if ctx.Err() != nil {
			return
		}
		_ = loop.Pause(ctx, disk.Every)
	}
}

// read reports whether the current snapshot came from etcd.
func (m *Mirror) read() bool {
	s := m.Status()
	return m.Current() != nil && s.Seen.Cluster != 0 && s.Restored.IsZero()
}

// fresh reports whether the current snapshot came from etcd, and etcd answers without an alarm.
func (m *Mirror) fresh() bool {
	s := m.Status()
	return m.read() && s.Away == nil && s.Alarm == nil
}

// save replaces the file atomically. A reader finds the old or the new content, also after a crash of the machine.
func (d *Disk) save(s *Snapshot, cluster uint64, now time.Time) error {
	head := diskHead{Mesh: d.Mesh, Cluster: cluster, Revision: s.Revision(), Saved: now.UTC()}
	return durable.Replace(d.Path, 0o600, func(w io.Writer) error { return writeSnapshot(w, head, s) })
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/ingest/lookup"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Sealer encrypts private keys before they are written. Safe for concurrent use.
type Sealer interface {
	// Seal returns a sealed private key and its keyed MAC, for the record of a key. stored is the stored record, or nil:
	// where its MAC is of the same private key, Seal returns its sealed form, so that nothing differs. No error shows the
	// private key.
	Seal(ctx context.Context, key model.Key, private model.PrivateKey, stored *model.SecretSpec) (sealed, mac []byte, err error)
	// Reencrypt seals again private keys of stored records that are sealed under an earlier key encryption key, at most a
	// number of them. Its results are valid whatever the error.
	Reencrypt(ctx context.Context, stored []*model.Secret, most int) (map[*model.Secret][]byte, error)
}

// errNoSealer is the error of Secrets where there is no Sealer.
var errNoSealer = errors.New("this process has no key encryption key (--kek)")

// UnsealedRecord is a Secret whose private key is not sealed yet. It goes to a Sealer, and nowhere else.
type UnsealedRecord struct {
	Record  *model.Secret // without its key
	Private model.PrivateKey
	Stored  *model.SecretSpec // nil: none is stored, or it does not decode
	heard   time.Time
}

// The events and effects of sealing.
type (
	// Seal requests that private keys are sealed. Again: some could not be sealed the last time, so the Loop pauses first.
	Seal struct {
		Epoch   kv.Epoch
		Secrets []*UnsealedRecord
		Again   bool
	}
	// Sealed answers Seal: for each Secret a record, or an error.
	Sealed struct {
		Epoch   kv.Epoch
		Secrets []*UnsealedRecord
		Records []model.Record
		Errors  []error
	}
)

func (Seal) effect()  {}
func (Sealed) event() {}

// awaitSeal adds records with a private key: they are wanted once it is sealed.
func (w *wanted) awaitSeal(private model.PrivateKey, records []model.Record, heard time.Time) {
	for _, r := range records {
		key := r.Meta().Key
		w.awaitingSeal[key] = &UnsealedRecord{Record: r.(*model.Secret), Private: private, heard: heard}
		w.changed[key] = true
	}
}

// sealing has private keys sealed, and stored ones encrypted again: request and takeReencrypted give out work,
// applySealed and applyReencrypted take results. State owns it.
type sealing struct {
	wanted        *wanted
	stored        *stored
	active        bool                         // an effect Seal is under way
	again         bool                         // some private keys could not be sealed
	failed        map[model.Key]object.Problem // of private keys that could not be sealed
	reencryptions map[model.Key]reencryption   // to be written
}

func newSealing(w *wanted, s *stored) *sealing {
	return &sealing{wanted: w, stored: s, failed: map[model.Key]object.Problem{}, reencryptions: map[model.Key]reencryption{}}
}

// endTerm forgets the work under way.
func (s *sealing) endTerm() {
	s.active, s.again = false, false
	clear(s.reencryptions)
}

// sealEverything has the private keys of all objects sealed again, since the stored Secrets that they are compared with
// are others.
func (s *sealing) sealEverything(objects *lookup.Table[entry]) {
	s.active, s.again = false, false
	clear(s.failed)
	for _, n := range objects.All() {
		if private := n.Entry.few().private; len(private) > 0 {
			s.wanted.remove(n.Entry.records)
			s.wanted.awaitSeal(private, n.Entry.records, time.Time{})
		}
	}
}

// request requests the sealing of private keys, unless it is under way.
func (s *sealing) request(epoch kv.Epoch) []Effect {
	if len(s.wanted.awaitingSeal) == 0 || s.active {
		return nil
	}
	s.active = true
	awaiting := make([]*UnsealedRecord, 0, len(s.wanted.awaitingSeal))
	for _, key := range slices.SortedFunc(maps.Keys(s.wanted.awaitingSeal), model.Key.Compare) {
		d := *s.wanted.awaitingSeal[key] // a copy: the stored Secret may change while the key is sealed
		if d.Stored = nil; s.stored.secrets[key] != nil {
			d.Stored = s.stored.secrets[key].Spec
		}
		s.wanted.awaitingSeal[key] = &d
		awaiting = append(awaiting, &d)
	}
	return []Effect{Seal{Epoch: epoch, Secrets: awaiting, Again: s.again}}
}

// applySealed adds the sealed records that are still wanted. It returns their keys, and the time of the oldest change
// among them.
func (s *sealing) applySealed(e Sealed, source func(model.Key) object.ID) (changed map[model.Key]bool, since time.Time) {
	s.active, s.again = false, false
	changed = map[model.Key]bool{}
	for i, d := range e.Secrets {
		key := d.Record.Key
		if s.wanted.awaitingSeal[key] != d {
			continue
		}
		if err := e.Errors[i]; err != nil {
			s.again = true
			s.failed[key] = object.Problem{ID: source(key), Code: problem.Pending, Severity: problem.Error,
				Message: fmt.Sprintf("cannot be sealed: %v: what was stored before stands", err)}
			continue
		}
		delete(s.wanted.awaitingSeal, key)
		delete(s.failed, key)
		s.wanted.records[key] = e.Records[i]
		changed[key], since = true, earlier(since, d.heard)
	}
	return changed, since
}

// problems returns a problem for each wanted Secret whose private key could not be sealed.
func (s *sealing) problems() (all []object.Problem) {
	for key, p := range s.failed {
		if s.wanted.awaitingSeal[key] != nil {
			all = append(all, p)
		}
	}
	return all
}

// sealAll carries out Seal.
func sealAll(ctx context.Context, sealer Sealer, e Seal) Sealed {
	out := Sealed{Epoch: e.Epoch, Secrets: e.Secrets, Records: make([]model.Record, len(e.Secrets)), Errors: make([]error, len(e.Secrets))}
	var away error // of the sealer: later keys are not tried, or each would wait for a provider that does not answer
	if sealer == nil {
		away = errNoSealer
	}
	for i, d := range e.Secrets {
		if out.Errors[i] = away; away != nil {
			continue
		}
		sealed, mac, err := sealer.Seal(ctx, d.Record.Key, d.Private, d.Stored)
		if err != nil {
			away, out.Errors[i] = err, err
			continue
		}
		out.Records[i], out.Errors[i] = sealedAs(d.Record, sealed, mac)
	}
	return out
}

// sealedAs returns a record with another sealed key, and its MAC.
func sealedAs(r *model.Secret, key, mac []byte) (model.Record, error) {
	spec := proto.CloneOf(r.Spec)
	spec.Key, spec.Mac = key, mac
	return model.New(r.Key, r.Created, spec)
}

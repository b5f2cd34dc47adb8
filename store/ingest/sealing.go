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

// Sealer encrypts ("seals") private keys before they are written. It must be safe for concurrent use. Both methods may
// block.
type Sealer interface {
	// Seal encrypts the private key of one record. The parameter key identifies the record, and is not an encryption
	// key. The parameter stored is the stored record, or nil. Seal returns the ciphertext and the keyed MAC of the
	// private key. If stored has the same MAC, Seal returns the stored ciphertext, so that the record does not change.
	// Errors must not contain the private key.
	Seal(ctx context.Context, key model.Key, private model.PrivateKey, stored *model.SecretSpec) (sealed, mac []byte, err error)
	// Reencrypt renews the encryption of private keys in stored that are under an earlier key encryption key. It ends
	// after the given number of private keys (most). It returns the new ciphertexts by record. They are valid even with
	// an error.
	Reencrypt(ctx context.Context, stored []*model.Secret, most int) (map[*model.Secret][]byte, error)
}

// errNoSealer is the error of all Secrets if there is no Sealer.
var errNoSealer = errors.New("this process has no key encryption key (--kek)")

// errNotTried is the error of the Secrets that follow a Secret whose private key could not be sealed. It does not
// repeat the error of the first Secret, which may belong to another tenant.
var errNotTried = errors.New("not tried, because the private key of an earlier Secret could not be sealed; both Secrets are tried again")

// UnsealedRecord is a Secret whose private key is not sealed yet. The private key is passed to a Sealer only.
type UnsealedRecord struct {
	Record  *model.Secret     // the record without the private key
	Private model.PrivateKey  // the private key, or registry credentials
	Stored  *model.SecretSpec // the stored Secret; nil: no Secret is stored, or it does not decode
	heard   time.Time         // when the Secret was emitted; zero: unknown
}

// The events and effects of sealing.
type (
	// Seal requests the sealing of private keys. If Again is set, some could not be sealed the last time, and the Loop
	// pauses first.
	Seal struct {
		Epoch   kv.Epoch          // the term of leadership
		Secrets []*UnsealedRecord // sorted by key
		Again   bool
	}
	// Sealed is the result of Seal. For each element of Secrets, Records has a record at the same index, or Errors has
	// an error. The three lists have equal lengths.
	Sealed struct {
		Epoch   kv.Epoch          // as in Seal
		Secrets []*UnsealedRecord // as in Seal
		Records []model.Record
		Errors  []error
	}
)

func (Seal) effect()  {}
func (Sealed) event() {}

// awaitSeal makes records wanted as soon as their private key is sealed. The parameter heard is the time when the
// records were emitted; zero: unknown.
func (w *wanted) awaitSeal(private model.PrivateKey, records []model.Record, heard time.Time) {
	for _, r := range records {
		key := r.Meta().Key
		w.awaitingSeal[key] = &UnsealedRecord{Record: r.(*model.Secret), Private: private, heard: heard}
		w.changed[key] = true
	}
}

// sealing schedules the sealing of private keys, and the repeated encryption of stored private keys. State owns it.
// request returns the effect Seal, and applySealed receives the event Sealed. applyReencrypted receives the event
// Reencrypted, and takeReencrypted returns its Secrets for the next batch.
type sealing struct {
	wanted        *wanted
	stored        *stored
	active        bool                         // an effect Seal is in progress
	again         bool                         // some private keys could not be sealed
	failed        map[model.Key]object.Problem // problems of the private keys that could not be sealed
	reencryptions map[model.Key]reencryption   // to be written
}

func newSealing(w *wanted, s *stored) *sealing {
	return &sealing{wanted: w, stored: s, failed: map[model.Key]object.Problem{}, reencryptions: map[model.Key]reencryption{}}
}

// endTerm drops the work in progress.
func (s *sealing) endTerm() {
	s.active, s.again = false, false
	clear(s.reencryptions)
}

// sealEverything schedules the sealing of the private keys of all objects. It runs after each load of the stored
// Secrets, since private keys are compared with these.
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

// request returns the effect that seals the waiting private keys. It returns nil if no key waits or a request is in
// progress.
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

// applySealed adds the sealed records that are still wanted. It returns their keys, each true, and the time of the
// oldest change among them (zero if unknown). An error becomes a problem of the object that the function source returns
// for the key. The Secrets with errors are tried again.
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
				Message: fmt.Sprintf("the private key cannot be sealed: %v; a version stored before stays in effect", err)}
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

// sealAll carries out the effect Seal. After an error of the sealer, it does not try the later Secrets, and their error
// is errNotTried. If sealer is nil, the error of all Secrets is errNoSealer.
func sealAll(ctx context.Context, sealer Sealer, e Seal) Sealed {
	out := Sealed{Epoch: e.Epoch, Secrets: e.Secrets, Records: make([]model.Record, len(e.Secrets)), Errors: make([]error, len(e.Secrets))}
	var untried error // not nil: no further key is tried, since each might wait for the timeout of the provider
	if sealer == nil {
		untried = errNoSealer
	}
	for i, d := range e.Secrets {
		if out.Errors[i] = untried; untried != nil {
			continue
		}
		sealed, mac, err := sealer.Seal(ctx, d.Record.Key, d.Private, d.Stored)
		if err != nil {
			untried, out.Errors[i] = errNotTried, err
			continue
		}
		out.Records[i], out.Errors[i] = sealedAs(d.Record, sealed, mac)
	}
	return out
}

// sealedAs returns a copy of a record with another sealed key and its MAC. Errors are those of model.New.
func sealedAs(r *model.Secret, key, mac []byte) (model.Record, error) {
	spec := proto.CloneOf(r.Spec)
	spec.Key, spec.Mac = key, mac
	return model.New(r.Key, r.Created, spec)
}

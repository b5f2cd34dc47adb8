package ingest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// collect takes over what the inventory changed. Without a comparison to follow up there is nothing to note: the next full
// comparison finds it.
func (s *State) collect() {
	if s.phase == ready || s.phase == writing {
		for key := range s.changed {
			delete(s.withheld, key)
			delete(s.held.keys, key)
			delete(s.refused, key)
		}
		if len(s.unreadable) == 0 {
			maps.Copy(s.changed, s.withheld)
			clear(s.withheld)
		}
		s.enqueue(s.changed, s.heard)
	}
	s.changed = emptied(s.changed)
}

// enqueue has keys that changed together wait for their batch, if any of them differs. It writes to the map.
func (s *State) enqueue(changed map[model.Key]bool, since time.Time) {
	for key := range changed {
		changed[key] = s.differs(key)
	}
	s.queue.add(changed, since)
}

// differs says whether a record that is wanted is another than the stored one, as that will be after the batch under way.
func (s *State) differs(key model.Key) bool {
	if s.remotes.stand(key.Origin) {
		return false
	}
	if s.dirty[key] {
		return true
	}
	if s.awaitingSeal[key] != nil {
		return false
	}
	stored, is := s.have[key]
	if hash, flies := s.flying[key]; flies {
		stored, is = hash, hash != model.Hash{}
	}
	want := s.wanted(key)
	return (want != nil) != is || want != nil && want.Meta().Hash != stored
}

// fill is how many records a batch has that holds more than one group, so that it is one transaction of etcd as a rule: what
// comes meanwhile waits for no more than that.
const fill = kv.MaxTxnOps - 1

// flush makes the next batch of what waits.
func (s *State) flush() []Effect {
	if effects := s.compareAgain(); effects != nil {
		return effects
	}
	if s.phase != ready || s.queue.empty() && len(s.reencryptions) == 0 && len(s.restore) == 0 && !s.complete {
		return nil
	}
	again := s.renewed()
	if s.paced && s.queue.config == 0 && len(again) == 0 && len(s.restore) == 0 && !s.complete {
		return nil
	}
	keys, since := s.next(fill - len(again))
	if len(keys)+len(again)+len(s.restore) == 0 && !s.complete {
		return nil
	}
	s.place.Seq++
	s.batch = kv.Batch{Epoch: s.epoch, Place: s.place, After: s.after, Stored: s.contents}
	s.flying = make(map[model.Key]model.Hash, len(keys)+len(again))
	endpointsOnly := len(again)+len(s.restore) == 0 && !s.complete
	keys = slices.AppendSeq(keys, maps.Keys(again))
	slices.SortFunc(keys, model.Key.Compare)
	for _, key := range keys {
		endpointsOnly = endpointsOnly && key.Kind.FollowsWorkloads()
		want := s.wanted(key)
		if r := again[key]; r != nil {
			want = r
		}
		if want == nil {
			s.batch.Deletes, s.flying[key] = append(s.batch.Deletes, key), model.Hash{}
		} else {
			s.batch.Puts, s.flying[key] = append(s.batch.Puts, want), want.Meta().Hash
		}
		delete(s.dirty, key)
	}
	s.batch.Was, s.batch.Restore = s.was(), s.restores(s.flying)
	s.phase, s.paced = writing, endpointsOnly && s.queue.empty()
	return []Effect{Write{Batch: s.batch, Since: since}}
}

// was is what is stored under the keys of the batch.
func (s *State) was() map[model.Key]model.Hash {
	was := make(map[model.Key]model.Hash, len(s.flying))
	for key := range s.flying {
		if hash, stored := s.have[key]; stored {
			was[key] = hash
		}
	}
	return was
}

// next takes keys for a batch from those that wait, about so many (one at least), and the time of the oldest change among them.
func (s *State) next(most int) (keys []model.Key, since time.Time) {
	for len(keys) == 0 && !s.queue.empty() {
		bytes := 0
		s.queue.take(most, func(g *group) int {
			since = earlier(since, g.since)
			for key := range g.keys {
				if !s.differs(key) {
					continue
				}
				keys = append(keys, key)
				if want := s.wanted(key); want != nil && len(keys) <= fill {
					bytes += proto.Size(want.Body())
				}
			}
			if bytes > kv.MaxRecordBytes {
				return 0
			}
			return most - len(keys)
		})
	}
	return keys, since
}

// written takes the outcome of a batch; `on` says whether another one may be written.
func (s *State) written(e Written) (effects []Effect, on bool) {
	batch := s.batch
	s.batch, s.flying = kv.Batch{}, nil
	switch e.Outcome {
	case Deposed:
		s.lose()
		return nil, false
	case Unknown:
		s.paced = false
		return s.start(true), false
	case Done:
	}
	s.phase, s.after, s.complete, s.contents = ready, e.After, false, e.Contents
	s.stats.Batches++
	for _, r := range batch.Puts {
		key := r.Meta().Key
		if size, refused := e.Refused[key]; refused {
			s.refused[key] = object.Problem{ID: s.sourceOf(key), Code: problem.NotAllowed, Severity: problem.Error, Message: fmt.Sprintf("its record has %d bytes, more than %d: what was stored before stands", size, kv.MaxRecordBytes)}
			continue
		}
		s.have[key] = r.Meta().Hash
		if secret, is := r.(*model.Secret); is {
			s.secrets[key] = secret
		}
		s.stats.Puts++
	}
	for _, key := range batch.Deletes {
		delete(s.have, key)
		delete(s.secrets, key)
		s.stats.Deletes++
	}
	if s.altered {
		s.paced = false
		return s.start(true), false
	}
	if s.paced {
		effects = append(effects, Wait{})
	}
	return effects, true
}

// shareKeys has what is stored be known by the texts that the wanted records have: the keys of a load hold whole paths of etcd in memory.
func (s *State) shareKeys() {
	for key, hash := range s.have {
		if want := s.want[key]; want != nil {
			s.have[want.Meta().Key] = hash
		}
	}
}

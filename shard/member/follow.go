package member

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"navarch.io/navarch/store/kv"
)

// Fleet is all replicas with a record, sorted by name. Immutable.
type Fleet struct {
	Members  []Record
	Revision int64 // of etcd
}

// Follow sends the fleet now and after each change, until ctx ends; then it closes the channel. A slow reader receives
// only the newest fleet. If a replica's record does not decode, its last good record is used and the error logged.
func Follow(ctx context.Context, store *kv.Store, log *slog.Logger) (<-chan Fleet, error) {
	folders, err := store.Follow(ctx, Folder)
	if err != nil {
		return nil, fmt.Errorf("follow the replicas: %w", err)
	}
	fleets := make(chan Fleet, 1)
	go func() {
		defer close(fleets)
		known := map[string]reading{}
		for folder := range folders {
			var fleet Fleet
			fleet, known = read(folder, known, log)
			select {
			case <-fleets: // replace an unread fleet: this goroutine is the only writer, so there is room afterwards
			default:
			}
			fleets <- fleet
		}
	}()
	return fleets, nil
}

// reading is a decoded record and its revision.
type reading struct {
	record   Record
	revision int64
	good     bool
}

// read decodes the records that are new in a folder.
func read(folder kv.Folder, known map[string]reading, log *slog.Logger) (Fleet, map[string]reading) {
	fleet, now := Fleet{Revision: folder.Revision}, make(map[string]reading, len(folder.Blobs))
	for _, blob := range folder.Blobs {
		last := known[blob.Path]
		if last.revision != blob.Revision {
			record, err := Decode(blob.Raw)
			if name := strings.TrimPrefix(blob.Path, Folder); err == nil && record.Name != name {
				err = fmt.Errorf("it says that it is %q", record.Name)
			}
			last.revision = blob.Revision
			if err == nil {
				last.record, last.good = record, true
			} else {
				log.Warn("a replica's record cannot be read", slog.String("path", blob.Path), slog.Any("error", err))
			}
		}
		if now[blob.Path] = last; last.good {
			fleet.Members = append(fleet.Members, last.record)
		}
	}
	return fleet, now
}

package member

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"navarch.io/navarch/store/kv"
)

// Fleet is all replicas that have a record, in order of their names. It never changes.
type Fleet struct {
	Members  []Record
	Revision int64 // of etcd
}

// Follow gives the fleet as it is and after each change, until ctx ends; then the channel is closed. A slow reader gets
// the newest only. A record that cannot be read counts as the last one of that replica that could; it is logged.
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
			case <-fleets: // the reader has not fetched it: this is the only writer, so there is room then
			default:
			}
			fleets <- fleet
		}
	}()
	return fleets, nil
}

// reading is a record as it was decoded at a revision.
type reading struct {
	record   Record
	revision int64
	good     bool
}

// read decodes what is new in a folder.
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

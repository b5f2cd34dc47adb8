package agentapi

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
)

// The headers and the trailer of a stream.
const (
	storeHeader    = "navarch-store"
	revisionHeader = "navarch-revision"
	placeHeader    = "navarch-place"
	behindTrailer  = "navarch-behind"
)

// MinRevision is the newest revision of the store of which a proxy was sent configuration, by any replica. No replica
// may send it configuration of an older revision.
type MinRevision struct {
	Store    string // name of the store; empty: unknown
	Revision int64  // 0: the proxy was sent no configuration
	// Place is the position of that configuration among all writes of leaders, as replicas state it: opaque. Revisions
	// begin again when etcd is restored, places do not. Empty: unknown.
	Place string
}

// maxPlace is the length of the longest accepted place, in bytes.
const maxPlace = 64

// Encode adds m to the metadata of a stream that is about to be opened. Without a revision only the place is added,
// which is always present because it requests places (AppendVersion).
func (m MinRevision) Encode(md metadata.MD) {
	md.Set(placeHeader, m.Place)
	if m.Revision <= 0 {
		return
	}
	md.Set(revisionHeader, encodeRevision(m.Revision))
	if m.Store != "" {
		md.Set(storeHeader, m.Store)
	}
}

// DecodeMinRevision decodes the metadata of an opened stream from its context. An invalid revision, or a place that is
// too long, counts as absent; a client that forges one only delays its own stream. places reports whether the client
// understands places in system_version_info.
func DecodeMinRevision(ctx context.Context) (m MinRevision, places bool) {
	header := metadata.ValueFromIncomingContext(ctx, placeHeader)
	if place := single(header); len(place) <= maxPlace {
		m.Place = place
	}
	if revision, ok := decodeRevision(single(metadata.ValueFromIncomingContext(ctx, revisionHeader))); ok && revision > 0 {
		m.Store, m.Revision = single(metadata.ValueFromIncomingContext(ctx, storeHeader)), revision
	}
	return m, len(header) == 1
}

// EncodeStore adds the name of a replica's store to the header of its response. It adds nothing for an empty name,
// which is not known yet.
func EncodeStore(md metadata.MD, store string) {
	if store != "" {
		md.Set(storeHeader, store)
	}
}

// DecodeStore returns the name of a replica's store; empty if the header has no name.
func DecodeStore(header metadata.MD) string { return single(header.Get(storeHeader)) }

// EncodeBehind returns the trailer of a stream that a replica refuses because it is behind the client's MinRevision.
// The revision is the replica's.
func EncodeBehind(revision int64) metadata.MD {
	return metadata.Pairs(behindTrailer, encodeRevision(revision))
}

// DecodeBehind returns the revision of a replica that refused a stream because it is behind. It returns false if the
// stream ended for another reason.
func DecodeBehind(trailer metadata.MD) (revision int64, ok bool) {
	return decodeRevision(single(trailer.Get(behindTrailer)))
}

// AppendVersion appends the text of system_version_info: the revision and, unless it is empty, the place, which only
// some clients understand.
func AppendVersion(b []byte, revision int64, place string) []byte {
	b = strconv.AppendInt(b, revision, 10)
	if place != "" {
		b = append(append(b, ' '), place...)
	}
	return b
}

// DecodeVersion is the inverse of AppendVersion. It returns false for other texts, as other control planes write them.
func DecodeVersion(text string) (revision int64, place string, ok bool) {
	number, place, _ := strings.Cut(text, " ")
	revision, ok = decodeRevision(number)
	if !ok || len(place) > maxPlace {
		return 0, "", false
	}
	return revision, place, true
}

// encodeRevision returns the header's text of a revision.
func encodeRevision(revision int64) string { return strconv.FormatInt(revision, 10) }

// decodeRevision is the inverse of encodeRevision. It returns false for other texts.
func decodeRevision(text string) (revision int64, ok bool) {
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 {
		return 0, false
	}
	return revision, true
}

// single returns the value of a header that was sent once; empty if it was sent never or repeatedly.
func single(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}

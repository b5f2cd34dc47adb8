package agentapi

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"
)

const (
	storeHeader    = "navarch-store"
	revisionHeader = "navarch-revision"
	behindTrailer  = "navarch-behind"
)

// MinRevision is the newest revision of the store that a proxy was served, by any replica: it must not be taken back behind it.
type MinRevision struct {
	Store    string // which store; empty: the agent does not know
	Revision int64  // 0: none
}

// Encode adds it to the metadata of a stream that is about to be opened. No revision is no header.
func (m MinRevision) Encode(md metadata.MD) {
	if m.Revision <= 0 {
		return
	}
	md.Set(revisionHeader, EncodeRevision(m.Revision))
	if m.Store != "" {
		md.Set(storeHeader, m.Store)
	}
}

// DecodeMinRevision reads it from the metadata of a stream that was opened, which is in the stream's context. What is not a revision is none: who forges one is the only one that waits
// for it.
func DecodeMinRevision(ctx context.Context) MinRevision {
	revision, ok := DecodeRevision(single(metadata.ValueFromIncomingContext(ctx, revisionHeader)))
	if !ok || revision == 0 {
		return MinRevision{}
	}
	return MinRevision{Store: single(metadata.ValueFromIncomingContext(ctx, storeHeader)), Revision: revision}
}

// EncodeStore adds the name of a replica's store to the header of its answer; empty, while it is not known: nothing.
func EncodeStore(md metadata.MD, store string) {
	if store != "" {
		md.Set(storeHeader, store)
	}
}

// DecodeStore is the name of a replica's store; empty: it does not say.
func DecodeStore(header metadata.MD) string { return single(header.Get(storeHeader)) }

// EncodeBehind is the trailer of a stream that a replica refuses because it is behind the client's MinRevision; revision is what it has.
func EncodeBehind(revision int64) metadata.MD {
	return metadata.Pairs(behindTrailer, EncodeRevision(revision))
}

// DecodeBehind is the revision that a replica has which refused a stream; false: that was not the reason.
func DecodeBehind(trailer metadata.MD) (revision int64, ok bool) {
	return DecodeRevision(single(trailer.Get(behindTrailer)))
}

// EncodeRevision is a revision of the store in a header, or in system_version_info.
func EncodeRevision(revision int64) string { return strconv.FormatInt(revision, 10) }

// DecodeRevision is the inverse of EncodeRevision; false: the text is none. In system_version_info other control planes write other
// things.
func DecodeRevision(text string) (revision int64, ok bool) {
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 {
		return 0, false
	}
	return revision, true
}

// single is the value of a header that was sent once; empty: it was not.
func single(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return ""
}

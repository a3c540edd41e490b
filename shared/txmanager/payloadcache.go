package txmanager

// payloadCache parses each payload once in a lease session.
type payloadCache struct {
	ChainConnector
	read map[string]readCall
}

type readCall struct {
	call Call
	err  error
}

func withPayloadCache(chain ChainConnector) payloadCache {
	return payloadCache{chain, make(map[string]readCall)}
}

// ParsePayload implements [ChainConnector].
func (m payloadCache) ParsePayload(payload []byte) (Call, error) {
	if known, ok := m.read[string(payload)]; ok {
		return known.call, known.err
	}
	call, err := m.ChainConnector.ParsePayload(payload)
	m.read[string(payload)] = readCall{call, err}
	return call, err
}

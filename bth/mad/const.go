package mad

// Class is a management class (IBTA vol.1 13.4.4).
type Class uint8

// Management classes.
const (
	ClassCM Class = 0x07 // communication management
)

// Method is the method of a MAD (IBTA vol.1 13.4.5).
type Method uint8

// Methods.
const (
	MethodGet     Method = 0x01
	MethodSend    Method = 0x03
	MethodGetResp Method = 0x81
)

// Attr is an attribute ID; those of class CM are its messages (IBTA vol.1 16.7.2).
type Attr uint16

// Attributes.
const (
	AttrClassPortInfo Attr = 0x0001
	AttrREQ           Attr = 0x0010
	AttrMRA           Attr = 0x0011
	AttrREJ           Attr = 0x0012
	AttrREP           Attr = 0x0013
	AttrRTU           Attr = 0x0014
	AttrDREQ          Attr = 0x0015
	AttrDREP          Attr = 0x0016
	AttrSIDRREQ       Attr = 0x0017
	AttrSIDRREP       Attr = 0x0018
	AttrLAP           Attr = 0x0019
	AttrAPR           Attr = 0x001a
)

// Status is the status field of the common header (IBTA vol.1 13.4.7).
type Status uint16

// Status codes.
const (
	StatusOK Status = 0
)

// QPType is the transport service type of REQ, 2 bits (IBTA vol.1 12.7.15).
type QPType uint8

// Transport service types.
const (
	RC QPType = 0
	UC QPType = 1
)

// MsgType names in MRA and REJ the message that is answered, 2 bits (IBTA vol.1
// 12.7.2, 12.6.6).
type MsgType uint8

// Messages answered. In MRA the last one stands for LAP.
const (
	MsgREQ   MsgType = 0
	MsgREP   MsgType = 1
	MsgOther MsgType = 2
)

// Reason is the reason of a rejection (IBTA vol.1 12.6.7.2).
type Reason uint16

// Reasons of rejection that the connection manager gives or understands.
const (
	ReasonNoQP                 Reason = 1
	ReasonNoResources          Reason = 3
	ReasonTimeout              Reason = 4
	ReasonInvalidCommID        Reason = 6
	ReasonInvalidServiceID     Reason = 8
	ReasonInvalidTransportType Reason = 9
	ReasonStaleConnection      Reason = 10
	ReasonInvalidGID           Reason = 12
	ReasonInvalidMTU           Reason = 26
	ReasonConsumerDefined      Reason = 28
)

// SIDRStatus is the status of SIDR_REP (IBTA vol.1 12.11.2).
type SIDRStatus uint8

// Status codes of SIDR_REP.
const (
	SIDRSuccess              SIDRStatus = 0
	SIDRUnsupportedServiceID SIDRStatus = 1
	SIDRRejectedByProvider   SIDRStatus = 2
)

// Lengths in bytes.
const (
	Len       = 256 // of a MAD
	HeaderLen = 24  // of the common header

	// Private data (IBTA vol.1 12.6.5 to 12.6.12, 12.11).
	REQPrivateLen     = 92
	MRAPrivateLen     = 222
	REJPrivateLen     = 148
	REPPrivateLen     = 196
	RTUPrivateLen     = 224
	DREQPrivateLen    = 220
	DREPPrivateLen    = 224
	SIDRREQPrivateLen = 216
	SIDRREPPrivateLen = 136

	ARILen      = 72 // additional reject information of REJ
	SIDRInfoLen = 72 // additional information of SIDR_REP
	IPCMLen     = 36 // header of rdma_cm in the private data of REQ and SIDR_REQ
)
